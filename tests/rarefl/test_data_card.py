"""``rarefl data``: a card, what a run would train on, and two pictures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import rarefl.data_card as data_card
from datasets.base import Copies, DataCard, ImageDataset, ImageSplit, Sites
from datasets.federated import DataSpec, deal
from rarefl.cli import app
from rarefl.data_pictures import SAMPLES, draw_partition, draw_samples

ROOT = Path(__file__).resolve().parents[2]


def skin(classes: int = 3, channels: int = 1) -> ImageDataset:
    """Return 90 training images of each class but the last, which has none, at two sites."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes - 1), 90)
    images = torch.from_numpy(rng.integers(0, 256, (len(labels), channels, 8, 8), dtype=np.uint8))
    split = ImageSplit(images, labels)
    names = tuple(f"class {label}" for label in range(classes))
    half = np.arange(len(labels)) % 3 // 2
    return ImageDataset(
        DataCard("digits", "Skin", "a hospital", "CC0", names, (0.5,) * channels, (0.5,) * channels),
        split,
        split,
        Sites(("graz", "wien"), half, half),
        np.arange(len(labels)) // 2,
        ("torn.png: truncated",),
    )


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., object]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["data", *arguments])


def test_card_run_and_pictures_of_digits(look: Callable[..., object], tmp_path: Path) -> None:
    result = look("digits")
    assert result.exit_code == 0, result.output
    for part in (
        *("CC BY 4.0", "1,437 images", "16 x 16 pixels, grayscale", "580 of 1,437 images are kept"),
        *("dirichlet, alpha 0.3: 5 clients", "11 labels per client in each of 5 label rounds", "site-04"),
        "A run with the default settings",
    ):
        assert part in result.output
    for name in ("digits-images.png", "digits-partition.png"):
        assert Path(name).is_file()
        assert f"picture: {name}" in result.output
        assert Image.open(name).width > 500


def test_a_run_config_names_the_data_and_the_partition(look: Callable[..., object]) -> None:
    result = look(str(ROOT / "conf/fedraw-digits.toml"), "--out", "sub/look.png")
    assert result.exit_code == 0, result.output
    assert "rare-holders, alpha 1, rare labels at 2: 12 clients" in result.output
    assert "budget" not in result.output
    assert sorted(path.name for path in Path("sub").iterdir()) == ["look-images.png", "look-partition.png"]


def test_sites_groups_and_damaged_images_are_told(
    look: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_card, "read_dataset", lambda spec: skin())
    Path("natural.toml").write_text(
        '[data]\npartition = "natural"\nclients = 2\nlong-tail = "none"\n'
        "[query]\nlabel-ratio = 0.2\nlast-label-ratio = 1.0\n"
    )
    result = look("digits", "natural.toml")
    assert result.exit_code == 0, result.output
    for part in (
        "graz",
        "1 images",
        "A run with natural.toml",
        "torn.png: truncated",
        "90 in the training split",
        "natural: 2",
    ):
        assert part in result.output
    assert "clients with fewer than 90 images, which are labelled whole: 1" in result.output


@pytest.mark.parametrize(
    ("copies", "lines"),
    [
        (Copies(), ["none"]),
        (Copies(2, 0, 0), ["2 images left out: the same image is in two classes"]),
        (
            Copies(4, 1200, 3),
            [
                "4 images left out: the same image is in two classes",
                "1,200 images left out of training: the same image is in the test split",
                "3 images beside the same image of their class",
            ],
        ),
    ],
)
def test_copies_are_counted(copies: Copies, lines: list[str]) -> None:
    table = data_card.card_table(replace(skin(), copies=copies))
    names, texts = (list(column.cells) for column in table.columns)
    assert texts[names.index("copies")] == "\n".join(lines)
    assert "copies" not in list(data_card.card_table(skin()).columns[0].cells)


def test_label_rounds_that_the_last_ratio_forbids_are_told(look: Callable[..., object]) -> None:
    Path("tiny.toml").write_text(
        "[data]\nclients = 50\n[query]\nlabel-ratio = 0.05\nlast-label-ratio = 0.45\n"
    )
    result = look("digits", "tiny.toml")
    assert result.exit_code == 0, result.output
    assert "1 label per client in each of 5 label rounds" in result.output
    assert "not 9 label rounds" in result.output


def test_what_cannot_be_dealt_comes_after_the_card_in_one_line(look: Callable[..., object]) -> None:
    Path("many.toml").write_text("data.clients = 5000")
    result = look("digits", "many.toml")
    assert result.exit_code == 1
    assert "1,437 images" in result.stdout
    assert result.stderr.startswith("error: 580 training images cannot be dealt to 5000 clients")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give its name"),
        (["digitz"], "did you mean 'digits'?"),
        (["digits", "none.toml"], "cannot read none.toml"),
        (["fashion-mnist", "--root", "/nowhere"], "/nowhere"),
        (["digits", "--out", "/proc/pictures"], "--out: cannot write /proc/pictures/digits-images.png"),
    ],
)
def test_errors_in_one_line(look: Callable[..., object], arguments: list[str], said: str) -> None:
    result = look(*arguments)
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("error: ")
    assert said in result.stderr


def spec(clients: int) -> DataSpec:
    return DataSpec("digits", "", clients, "dirichlet", 0.3, "none", 1.0, 1)


def test_the_map_shows_every_count_but_zeros() -> None:
    data = deal(skin(), spec(4))
    figure = draw_partition(data)
    axes, by_class, by_client = figure.axes
    counts = np.stack([data.class_counts(client) for client in range(4)])
    texts = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert texts == {(c + 0.5, k + 0.5): str(counts[k, c]) for k, c in np.argwhere(counts)}
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(data.client_names)
    bold = [tick.get_text() for tick in axes.get_xticklabels() if tick.get_fontweight() == "bold"]
    assert bold == [data.card.class_names[label] for label in data.rare_labels]
    assert [bar.get_height() for bar in by_class.patches] == counts.sum(axis=0).tolist()
    assert [bar.get_width() for bar in by_client.patches] == counts.sum(axis=1).tolist()


def test_too_many_clients_for_counts_get_a_scale(tmp_path: Path) -> None:
    figure = draw_partition(deal(skin(13), spec(130)))
    axes, *_, scale = figure.axes
    assert not axes.texts
    assert scale.get_xlabel() == "images (white: none)"
    assert len(axes.get_yticklabels()) <= 120
    assert figure.get_figheight() < 30
    figure.savefig(tmp_path / "map.png", dpi=20)


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_of_each_class_stand_beside_its_name(channels: int, tmp_path: Path) -> None:
    dataset = skin(30, channels)
    figure = draw_samples(dataset)
    assert len(figure.axes) == 30
    for label, axes in enumerate(figure.axes[:-1]):
        assert axes.texts[0].get_text() == f"class {label}"
        (shown,) = axes.get_images()
        strip = np.asarray(shown.get_array()).reshape(8, -1, channels)
        own = {image.numpy().tobytes() for image in dataset.train.images[dataset.train.labels == label]}
        samples = [strip[:, at * 9 : at * 9 + 8].transpose(2, 0, 1).tobytes() for at in range(SAMPLES)]
        assert set(samples) <= own
        assert len(set(samples)) == SAMPLES
    assert figure.axes[-1].texts[1].get_text() == "no training image"
    figure.savefig(tmp_path / "samples.png", dpi=20)


def test_a_long_title_and_long_names_stay_in_the_picture(tmp_path: Path) -> None:
    dataset = skin()
    names = ("a" * 50, "class 1", "class 2")
    card = replace(dataset.card, title="A long title of a data set " * 4, class_names=names)
    figure = draw_samples(replace(dataset, card=card))
    figure.savefig(tmp_path / "samples.png")
    for text in (*figure.texts, *(axes.texts[0] for axes in figure.axes)):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
    assert figure.axes[0].texts[0].get_text() == "a" * 29 + "…"


def test_the_scale_of_many_cells_is_whole() -> None:
    figure = draw_partition(deal(skin(41), spec(100)))
    figure.draw_without_rendering()
    *_, scale = figure.axes
    assert scale.xaxis.label.get_window_extent().y0 >= 0


def test_a_relative_root_is_that_of_the_command_line(look: Callable[..., object]) -> None:
    result = look("fashion-mnist", "--root", "none")
    assert f"{Path.cwd() / 'none'}: no such folder" in result.stderr
