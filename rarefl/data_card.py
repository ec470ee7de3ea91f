"""What the command ``rarefl data`` tells: a data set's card, and what a run would train on."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from datasets.base import Copies, ImageDataset
from datasets.budget import budget_per_client, label_rounds, most_label_rounds
from datasets.federated import FederatedData, deal, read_dataset
from fairfal_app.config import FairFALConfig
from federation.client import data_spec
from federation.errors import ConfigError
from rarefl.data_pictures import draw_partition, draw_samples
from rarefl.settings import PRESETS, Given, read_words

MOST_CLASS_COLUMNS = 12
"""Up to so many classes the table of clients has a column for each."""

_MOST_LEFT_OUT = 5


def data_settings(words: Sequence[str], root: Path | None) -> Given:
    """Return the settings that a look at the data goes by: a data set's name stands for ``data.name=NAME``.

    Raises
    ------
    ConfigError
        If nothing is given, or a word is no setting.
    """
    if not words:
        raise ConfigError("which data set? Give its name (`rarefl list data`), or a preset that names one")
    settings = [f"data.name={word}" if _names_data(word) else word for word in words]
    if root is not None:
        settings.append(f'data.root="{root if str(root).startswith("~") else root.absolute()}"')
    return read_words(settings)


def _names_data(word: str) -> bool:
    return not ("=" in word or "/" in word or word.endswith(".toml") or (PRESETS / f"{word}.toml").is_file())


def show_data(config: FairFALConfig, settings: str, out: Path, console: Console) -> None:
    """Print the card and what a run would train on, and write a picture of each.

    Parameters
    ----------
    settings
        What the run config is called.
    out
        Folder of the pictures ``NAME-images.png`` and ``NAME-partition.png``; of a path that ends in
        ``.png`` the last part without the ending takes the place of NAME.

    Raises
    ------
    DataError
        If the data set is not found or damaged, or cannot be dealt; the card comes before the latter.
    ConfigError
        If the pictures cannot be written.
    """
    spec = data_spec(config)
    dataset = read_dataset(spec)
    folder, name = (out.parent, out.stem) if out.suffix.lower() == ".png" else (out, dataset.card.name)
    console.print(card_table(dataset))
    console.print(class_table(dataset))
    if dataset.sites is not None:
        console.print(site_table(dataset))
        console.print(
            f"data.partition = 'natural' with data.clients = {len(dataset.sites.names)} makes these sites "
            "the clients"
        )
    console.print(f"picture: {_save(folder / f'{name}-images.png', lambda: draw_samples(dataset))}\n")
    data = deal(dataset, spec)
    console.print(run_table(config, data, settings))
    console.print(label_table(data))
    console.print(client_table(data))
    console.print(f"picture: {_save(folder / f'{name}-partition.png', lambda: draw_partition(data))}")


def card_table(dataset: ImageDataset) -> Table:
    """Return the card: where the data come from, what may be done with them, and how much there is."""
    card = dataset.card
    _, channels, height, width = dataset.train.images.shape
    table = _pairs(card.title)
    table.add_row("name", card.name)
    table.add_row("source", card.source)
    table.add_row("licence", card.licence)
    table.add_row("images", f"{width} x {height} pixels, {'grayscale' if channels == 1 else 'RGB'}")
    table.add_row("training", f"{len(dataset.train):,} images")
    table.add_row("test", f"{len(dataset.test):,} images")
    table.add_row("classes", str(dataset.num_classes))
    if dataset.train_groups is not None:
        groups = len(np.unique(dataset.train_groups))
        table.add_row("groups", f"{groups:,} in the training split; the images of one stay at one client")
    if dataset.copies is not None:
        table.add_row("copies", _copies(dataset.copies))
    if dataset.left_out:
        shown = "\n".join(dataset.left_out[:_MOST_LEFT_OUT])
        more = len(dataset.left_out) - _MOST_LEFT_OUT
        table.add_row(
            "left out",
            f"{len(dataset.left_out):,} images\n{shown}{f' and {more} more' if more > 0 else ''}",
        )
    return table


def _copies(copies: Copies) -> str:
    counts = (
        (copies.contradictory, "left out: the same image is in two classes"),
        (copies.in_test, "left out of training: the same image is in the test split"),
        (copies.kept, "beside the same image of their class"),
    )
    return "\n".join(f"{count:,} images {what}" for count, what in counts if count) or "none"


def class_table(dataset: ImageDataset) -> Table:
    """Return the images of each class in the published splits."""
    table = _counts("class", "name", "training", "test", left=2)
    for label, name in enumerate(dataset.card.class_names):
        counts = [int((split.labels == label).sum()) for split in (dataset.train, dataset.test)]
        table.add_row(str(label), name, *(f"{count:,}" for count in counts))
    return table


def site_table(dataset: ImageDataset) -> Table:
    """Return the images of each site of a data set that has sites."""
    assert dataset.sites is not None
    table = _counts("site", "training", "test", left=1)
    for place, name in enumerate(dataset.sites.names):
        counts = [int((site == place).sum()) for site in (dataset.sites.train, dataset.sites.test)]
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table


def run_table(config: FairFALConfig, data: FederatedData, settings: str) -> Table:
    """Return what a run with these settings, so called, trains on and, with FairFAL, the labels it buys."""
    keys, clients = config.data, len(data.pools)
    table = _pairs(f"A run with {settings}")
    tail = "none" if keys.long_tail == "none" else f"{keys.long_tail}, imbalance {keys.imbalance:g}"
    table.add_row("long tail", f"{tail}: {len(data.train_ids):,} of {len(data.train):,} images are kept")
    own = {
        "dirichlet": f", alpha {keys.alpha:g}",
        "rare-holders": f", alpha {keys.alpha:g}, rare labels at {keys.rare_holders}",
        "shards": f", {keys.shards_per_client} for each client",
    }
    table.add_row("partition", f"{keys.partition}{own.get(keys.partition, '')}: {clients} clients")
    names = [data.card.class_names[label] for label in data.rare_labels]
    table.add_row("rare labels", ", ".join(names) or "none: all labels are equally frequent")
    table.add_row("seed", str(config.data_seed))
    if config.app == "fairfal":
        query = config.query
        budget = budget_per_client(query.label_ratio, len(data.train_ids), clients)
        most = most_label_rounds(query.label_ratio, query.last_label_ratio)
        rounds = label_rounds(query.label_ratio, query.last_label_ratio, [len(pool) for pool in data.pools])
        wanted = budget * rounds
        short = sum(len(pool) < wanted for pool in data.pools)
        labels = "label" if budget == 1 else "labels"
        table.add_row("budget", f"{budget:,} {labels} per client in each of {rounds} label rounds")
        if rounds < most:
            table.add_row(
                "",
                f"not {most} label rounds: with 1 label per client and round, the least there is, more would "
                f"pass query.last-label-ratio = {query.last_label_ratio:g}",
            )
        if short:
            table.add_row("", f"clients with fewer than {wanted:,} images, which are labelled whole: {short}")
    return table


def label_table(data: FederatedData) -> Table:
    """Return for each class the images that a run keeps and how many clients hold some."""
    counts = _client_counts(data)
    table = _counts("class", "name", "images in the run", "clients that hold it", "", left=2)
    for label, name in enumerate(data.card.class_names):
        rare = "rare" if label in data.rare_labels else ""
        images, holders = counts[:, label].sum(), (counts[:, label] > 0).sum()
        table.add_row(str(label), name, f"{images:,}", str(holders), rare)
    return table


def client_table(data: FederatedData) -> Table:
    """Return the images of each client, by class where there are few classes."""
    counts = _client_counts(data)
    rare = list(data.rare_labels)
    by_class = data.num_classes <= MOST_CLASS_COLUMNS
    classes = [f"class {label}" if label == 0 else str(label) for label in range(data.num_classes)]
    columns = ["client", "training", "test", "classes", "rare labels", *(classes if by_class else [])]
    table = _counts(*columns, left=1)
    for client, (name, row) in enumerate(zip(data.client_names, counts, strict=True)):
        totals = (row.sum(), len(data.test_pools[client]), (row > 0).sum(), (row[rare] > 0).sum())
        table.add_row(name, *(f"{number:,}" for number in totals), *(map(str, row) if by_class else []))
    return table


def _client_counts(data: FederatedData) -> np.ndarray:
    return np.stack([data.class_counts(client) for client in range(len(data.pools))])


def _pairs(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table


def _counts(*columns: str, left: int) -> Table:
    """Return a table whose first ``left`` columns hold names and the others numbers."""
    table = Table(caption_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right")
    return table


def _save(path: Path, draw: Callable[[], Figure]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draw().savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(
            f"--out: cannot write {path}: {error.strerror or error}; give a folder that you may write to"
        ) from None
    return path
