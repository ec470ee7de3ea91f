"""Two pictures of a data set: how its images lie at the clients, and what they look like."""

import math
import textwrap

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from datasets.base import ImageDataset
from datasets.federated import FederatedData
from datasets.randomness import generator

SAMPLES = 8
"""Images of each class in the picture of samples."""

MOST_COUNTED = 120
"""Up to so many clients and classes the map of the partition tells the count of each cell."""

MOST_CELLS = 3000
"""Of more cells, clients times classes, it tells none: they take long to draw."""

_BLUE = "#0072B2"
_CELL = (0.36, 0.22)  # inches, for counts of up to four digits
_LARGEST = 16.0  # inches of the map where cells are too many for counts
_MOST_NAMES = 60  # along a side of that map
_LONGEST = 30  # letters of a class's name
_BARS = 0.8  # inches
_SCALE = 0.2  # inches
_ROWS = 25  # classes below each other in the picture of samples
_SAMPLE = 0.5  # inches
_TITLE_LINE = 0.22  # inches
_TITLE_LETTER = 0.11  # inches


def draw_partition(data: FederatedData) -> Figure:
    """Return a map of the training images, clients by classes, with the totals of both beside it.

    Colours are on a logarithmic scale and readable by colour-blind people; where a client has no image of a
    class the cell is white. Rare labels are in bold.
    """
    counts = np.stack([data.class_counts(client) for client in range(len(data.pools))])
    clients, classes = counts.shape
    counted = max(clients, classes) <= MOST_COUNTED and clients * classes <= MOST_CELLS
    width, height = (
        max(4.0, min(number * side, math.inf if counted else _LARGEST))
        for number, side in zip((classes, clients), _CELL, strict=True)
    )
    height = max(1.5, height if clients * _CELL[1] > 4 else clients * _CELL[1])
    figure = Figure(figsize=(width + 4.2, height + 3.2), layout="constrained")
    rows = (_BARS, height) if counted else (_BARS, height, _SCALE)
    grid = figure.add_gridspec(len(rows), 2, width_ratios=(width, _BARS), height_ratios=rows)
    axes = figure.add_subplot(grid[1, 0])
    by_class = figure.add_subplot(grid[0, 0], sharex=axes)
    by_client = figure.add_subplot(grid[1, 1], sharey=axes)
    mesh = _draw_map(axes, counts, counted)
    if not counted:
        figure.colorbar(
            mesh, figure.add_subplot(grid[2, 0]), orientation="horizontal", label="images (white: none)"
        )
    _name_axes(axes, data, counted)
    _draw_totals(by_class, by_client, counts, counted)
    figure.suptitle(f"{data.card.title}: {len(data.train_ids):,} training images at {clients} clients")
    return figure


def _draw_map(axes: Axes, counts: npt.NDArray[np.int64], counted: bool) -> QuadMesh:
    norm, colours = LogNorm(1, max(2, int(counts.max()))), mpl.colormaps["cividis"]
    mesh = axes.pcolormesh(
        np.ma.masked_equal(counts, 0),
        norm=norm,
        cmap=colours,
        edgecolors="white" if counted else "none",
        linewidth=0.5,
    )
    axes.invert_yaxis()
    for side in axes.spines.values():
        side.set_color("0.7")
    if not counted:
        return mesh
    for client, label in np.argwhere(counts > 0):
        count = counts[client, label]
        text = axes.text(
            label + 0.5,
            client + 0.5,
            str(count),
            ha="center",
            va="center",
            fontsize=7 if counts.max() < 10_000 else 6,
            color="white" if norm(count) < 0.55 else "black",
        )
        text.set_in_layout(False)
    return mesh


def _name_axes(axes: Axes, data: FederatedData, counted: bool) -> None:
    sides = (
        (axes.xaxis, data.card.class_names, data.rare_labels),
        (axes.yaxis, data.client_names, ()),
    )
    for axis, names, bold in sides:
        every = 1 if counted else math.ceil(len(names) / _MOST_NAMES)
        shown = range(0, len(names), every)
        axis.set_ticks(
            [place + 0.5 for place in shown], [_short(names[place]) for place in shown], fontsize=8
        )
        for tick, place in zip(axis.get_ticklabels(), shown, strict=True):
            if place in bold:
                tick.set_fontweight("bold")
    axes.tick_params(length=0)
    if max(map(len, data.card.class_names)) > 2:
        for tick in axes.get_xticklabels():
            tick.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.set_xlabel("class (rare labels in bold)" if data.rare_labels else "class")


def _draw_totals(by_class: Axes, by_client: Axes, counts: npt.NDArray[np.int64], counted: bool) -> None:
    for axes, totals in ((by_class, counts.sum(axis=0)), (by_client, counts.sum(axis=1))):
        places = np.arange(len(totals)) + 0.5
        draw = axes.bar if axes is by_class else axes.barh
        bars = draw(places, totals, 0.8, color=_BLUE)
        if counted:
            rotation = 90 if axes is by_class else 0
            axes.bar_label(bars, [str(total) for total in totals], padding=2, fontsize=7, rotation=rotation)
        axes.axis("off")
        axes.margins(0.0)
    by_class.set_ylim(0, by_class.get_ylim()[1] * 1.1)
    # Above the counts on the bars, which stand upright.
    by_class.set_title("images of each class", fontsize=8, color=_BLUE, pad=20 if counted else 6)
    by_client.set_title("images of\neach client", fontsize=8, color=_BLUE)


def draw_samples(dataset: ImageDataset) -> Figure:
    """Return a picture with some training images of each class, drawn at random by a fixed seed."""
    classes = dataset.num_classes
    columns = math.ceil(classes / _ROWS)
    rows = math.ceil(classes / columns)
    longest = max(map(len, dataset.card.class_names))
    names = 0.09 * min(longest, _LONGEST) + 0.3
    width = columns * (names + SAMPLES * _SAMPLE)
    title = textwrap.wrap(f"{dataset.card.title}: training images", int(width / _TITLE_LETTER))
    above = 0.25 + _TITLE_LINE * len(title)
    height = rows * _SAMPLE + above
    figure = Figure(figsize=(width, height))
    figure.suptitle("\n".join(title), y=1 - 0.1 / height, va="top")
    for label, name in enumerate(dataset.card.class_names):
        column, row = divmod(label, rows)
        left = column * (names + SAMPLES * _SAMPLE) + names
        bottom = height - above - (row + 1) * _SAMPLE + 0.02
        size = (SAMPLES * _SAMPLE - 0.1, _SAMPLE - 0.04)
        axes = figure.add_axes((left / width, bottom / height, size[0] / width, size[1] / height))
        axes.axis("off")
        axes.text(-0.02, 0.5, _short(name), ha="right", va="center", fontsize=9, transform=axes.transAxes)
        strip = _strip(dataset, label)
        if strip is None:
            axes.text(0, 0.5, "no training image", va="center", fontsize=9, transform=axes.transAxes)
        else:
            axes.imshow(strip, cmap="gray", vmin=0, vmax=255, aspect="auto")
    return figure


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _strip(dataset: ImageDataset, label: int) -> npt.NDArray[np.uint8] | None:
    """Return images of a class side by side with white between them, (H, W') or (H, W', 3)."""
    members = np.flatnonzero(dataset.train.labels == label)
    if len(members) == 0:
        return None
    chosen = generator(0, "sample pictures", label).permutation(members)[:SAMPLES]
    images = dataset.train.images[chosen].numpy()
    _, channels, height, width = images.shape
    gap = max(1, width // 16)
    strip = np.full((height, SAMPLES * (width + gap) - gap, channels), 255, dtype=np.uint8)
    for place, image in enumerate(images):
        start = place * (width + gap)
        strip[:, start : start + width] = image.transpose(1, 2, 0)
    return strip[:, :, 0] if channels == 1 else strip
