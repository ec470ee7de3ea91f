"""Two pictures of a data set: how its images lie at the clients, and what they look like."""

import math

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from datasets.base import ImageDataset
from datasets.federated import FederatedData
from datasets.randomness import generator

SAMPLES = 8
"""Images of each class in the picture of samples."""

MOST_COUNTED = 120
"""Up to so many clients and classes every cell of the partition has room for its count."""

_BLUE = "#0072B2"
_CELL = (0.36, 0.22)  # inches, for counts of up to four digits
_LARGEST = 24.0  # inches of the map where cells are too many for counts
_BARS = 0.8  # inches
_ROWS = 25  # classes below each other in the picture of samples
_SAMPLE = 0.5  # inches
_TITLE = 0.45  # inches


def draw_partition(data: FederatedData) -> Figure:
    """Return a map of the training images, clients by classes, with the totals of both beside it.

    Colours are on a logarithmic scale and readable by colour-blind people; where a client has no image of a
    class the cell is white. Rare labels are in bold.
    """
    counts = np.stack([data.class_counts(client) for client in range(len(data.pools))])
    clients, classes = counts.shape
    counted = max(clients, classes) <= MOST_COUNTED
    width, height = (
        max(4.0, min(number * side, math.inf if counted else _LARGEST))
        for number, side in zip((classes, clients), _CELL, strict=True)
    )
    height = max(1.5, height if clients * _CELL[1] > 4 else clients * _CELL[1])
    figure = Figure(figsize=(width + 4.2, height + 3.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(width, _BARS), height_ratios=(_BARS, height))
    axes = figure.add_subplot(grid[1, 0])
    by_class = figure.add_subplot(grid[0, 0], sharex=axes)
    by_client = figure.add_subplot(grid[1, 1], sharey=axes)
    _draw_map(figure, axes, counts, counted)
    _name_axes(axes, data)
    _draw_totals(by_class, by_client, counts, counted)
    figure.suptitle(f"{data.card.title}: {len(data.train_ids):,} training images at {clients} clients")
    return figure


def _draw_map(figure: Figure, axes: Axes, counts: npt.NDArray[np.int64], counted: bool) -> None:
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
        figure.colorbar(mesh, ax=axes, location="bottom", shrink=0.3, label="images (white: none)")
        return
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


def _name_axes(axes: Axes, data: FederatedData) -> None:
    sides = (
        (axes.xaxis, data.card.class_names, data.rare_labels),
        (axes.yaxis, data.client_names, ()),
    )
    for axis, names, bold in sides:
        every = math.ceil(len(names) / MOST_COUNTED)
        shown = range(0, len(names), every)
        axis.set_ticks([place + 0.5 for place in shown], [names[place] for place in shown], fontsize=8)
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
    by_class.set_title("images of each class", fontsize=8, color=_BLUE)
    by_client.set_title("images of\neach client", fontsize=8, color=_BLUE)


def draw_samples(dataset: ImageDataset) -> Figure:
    """Return a picture with some training images of each class, drawn at random by a fixed seed."""
    classes = dataset.num_classes
    columns = math.ceil(classes / _ROWS)
    rows = math.ceil(classes / columns)
    longest = max(map(len, dataset.card.class_names))
    names = 0.09 * min(longest, 30) + 0.3
    figure = Figure(figsize=(columns * (names + SAMPLES * _SAMPLE), rows * _SAMPLE + _TITLE))
    figure.suptitle(f"{dataset.card.title}: training images", y=1 - 0.15 / figure.get_figheight(), va="top")
    width, height = figure.get_size_inches()
    for label, name in enumerate(dataset.card.class_names):
        column, row = divmod(label, rows)
        left = column * (names + SAMPLES * _SAMPLE) + names
        bottom = height - _TITLE - (row + 1) * _SAMPLE + 0.02
        size = (SAMPLES * _SAMPLE - 0.1, _SAMPLE - 0.04)
        axes = figure.add_axes((left / width, bottom / height, size[0] / width, size[1] / height))
        axes.axis("off")
        axes.text(-0.02, 0.5, name[:30], ha="right", va="center", fontsize=9, transform=axes.transAxes)
        strip = _strip(dataset, label)
        if strip is None:
            axes.text(0, 0.5, "no training image", va="center", fontsize=9, transform=axes.transAxes)
        else:
            axes.imshow(strip, cmap="gray", vmin=0, vmax=255, aspect="auto")
    return figure


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
