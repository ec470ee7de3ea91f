"""What all pictures share: the look of a method, panels, bands over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers and dashes work in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_DASHES = ("-", "--", "-.", ":")
_MOST_COLUMNS = 3
MOST_NAMES = 30
MOST_NUMBERS = 12

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture with the words for readers who cannot see it."""

    slug: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Look:
    """How a method is drawn; the same in every picture of a section."""

    colour: str
    marker: str
    dashes: str


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """Return the look of each method."""
    return {
        method: Look(
            _COLOURS[place % len(_COLOURS)],
            _MARKERS[place % len(_MARKERS)],
            _DASHES[place % len(_DASHES)],
        )
        for place, method in enumerate(methods)
    }


def plain(text: object) -> str:
    """Return a text in which matplotlib sees no formula."""
    return str(text).replace("$", r"\$")


def panels(
    titles: Sequence[str], width: float = 3.4, height: float = 3.0, shared: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a titled panel for each title, at most three side by side."""
    columns = min(len(titles), _MOST_COLUMNS)
    rows = math.ceil(len(titles) / columns)
    figure = Figure(figsize=(max(4.2, width * columns), height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).ravel()
    for axes in grid[len(titles) :]:
        axes.remove()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(plain(title), fontsize="medium")
        axes.tick_params(labelbottom=True, labelleft=True, labelsize="small")
    return figure, list(grid[: len(titles)])


def band(axes: Axes, x: npt.ArrayLike, mean: npt.ArrayLike, sd: npt.ArrayLike, name: str, look: Look) -> None:
    """Draw a line and the band of one standard deviation around it (none where that is NaN)."""
    middle, around = np.asarray(mean, dtype=np.float64), np.asarray(sd, dtype=np.float64)
    axes.plot(
        x,
        middle,
        color=look.colour,
        linestyle=look.dashes,
        marker=look.marker,
        markersize=4,
        markevery=max(1, len(middle) // 12),
        linewidth=1.4,
        label=plain(name),
    )
    axes.fill_between(x, middle - around, middle + around, color=look.colour, alpha=0.15, linewidth=0)
    axes.grid(alpha=0.3)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of one panel below all of them."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower center", ncols=min(4, len(names)), fontsize="small")


def shade(
    axes: Axes, values: Numbers, rows: Sequence[str], columns: Sequence[str], numbers: bool
) -> AxesImage:
    """Draw shares (R, C) in [0, 1] as a field; dark is little, NaN stays white. Returns the image."""
    image = axes.imshow(values, cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    for ticks, names in ((axes.set_yticks, rows), (axes.set_xticks, columns)):
        if len(names) <= MOST_NAMES:
            ticks(range(len(names)), [plain(name) for name in names])
    if numbers and max(values.shape) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if value < 0.5 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=6)
    return image
