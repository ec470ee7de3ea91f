"""HAM10000 and ISIC 2019, in the layouts in which they are published."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import ham10000, isic2019
from tests.datasets.written_images import save

pytestmark = pytest.mark.usefixtures("cache_home")

DX = ham10000.CLASS_NAMES
SITES = ("rosendahl", "vidir_modern", "vidir_molemax", "vienna_dias")


def ham_rows() -> list[dict[str, str]]:
    """Return 84 images of 56 lesions: every second lesion has two."""
    rows = []
    for lesion in range(56):
        for _ in range(1 + lesion % 2):
            rows.append(
                {
                    "lesion_id": f"HAM_{lesion:07d}",
                    "image_id": f"ISIC_{24306 + len(rows):07d}",
                    "dx": DX[lesion // 8],
                    "dataset": SITES[lesion % 4],
                }
            )
    return rows


def table(rows: list[dict[str, str]], separator: str = ",") -> str:
    return (
        "\n".join(separator.join(line) for line in [rows[0].keys(), *(row.values() for row in rows)]) + "\n"
    )


def write_ham(
    root: Path,
    rows: list[dict[str, str]],
    metadata: str = "HAM10000_metadata.csv",
    folders: tuple[str, ...] = ("HAM10000_images_part_1", "HAM10000_images_part_2"),
    separator: str = ",",
) -> Path:
    for number, row in enumerate(rows):
        save(
            root / folders[number % len(folders)] / f"{row['image_id']}.jpg",
            (number, number, number),
            (12, 9),
        )
    (root / metadata).write_text(table(rows, separator))
    return root


def load_ham(root: Path, **options: object):  # type: ignore[no-untyped-def]
    return ham10000.load(LoadOptions(root, image_size=8, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "folders", "separator"),
    [
        ("HAM10000_metadata.csv", ("HAM10000_images_part_1", "HAM10000_images_part_2"), ","),
        ("HAM10000_metadata", ("ham10000_images_part_1", "ham10000_images_part_2"), ","),
        ("HAM10000_metadata.tab", ("images",), "\t"),
        ("ham10000_metadata.csv", (".",), ";"),
        ("HAM10000_metadata.csv", ("part_1/part_1", "part_2/part_2"), ","),
    ],
)
def test_ham_layouts(tmp_path: Path, metadata: str, folders: tuple[str, ...], separator: str) -> None:
    rows = ham_rows()
    dataset = load_ham(write_ham(tmp_path / "ham", rows, metadata, folders, separator))
    assert dataset.card.class_names == DX
    assert dataset.left_out == ()
    assert dataset.sites is not None
    assert dataset.sites.names == SITES
    found = []
    for split, sites in ((dataset.train, dataset.sites.train), (dataset.test, dataset.sites.test)):
        for image, label, site in zip(split.images, split.labels, sites, strict=True):
            row = rows[round(image.float().mean().item())]
            assert (row["dx"], row["dataset"]) == (DX[label], SITES[site])
            found.append(row["image_id"])
    assert sorted(found) == sorted(row["image_id"] for row in rows)


def test_no_lesion_is_on_both_sides(tmp_path: Path) -> None:
    rows = ham_rows()
    root = write_ham(tmp_path / "ham", rows)
    for seed in range(3):
        dataset = load_ham(root, seed=seed)
        train, test = (
            [rows[round(image.float().mean().item())]["lesion_id"] for image in split.images]
            for split in (dataset.train, dataset.test)
        )
        assert not set(train) & set(test)
        assert np.bincount(dataset.test.labels, minlength=7).min() > 0
        assert len(set(test)) == 14  # of the 8 lesions of each class, 1.6, rounded
        # Equal numbers are equal lesions.
        assert len(set(zip(train, dataset.train_groups, strict=True))) == len(set(train))
        assert len(set(dataset.train_groups)) == len(set(train))


def test_a_copy_without_sites(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "dataset"} for row in ham_rows()]
    assert load_ham(write_ham(tmp_path / "ham", rows)).sites is None


def test_images_without_a_lesion_are_groups_of_their_own(tmp_path: Path) -> None:
    rows = [row | {"lesion_id": "", "dataset": ""} for row in ham_rows()]
    dataset = load_ham(write_ham(tmp_path / "ham", rows))
    assert len(set(dataset.train_groups)) == len(dataset.train)
    assert dataset.sites.names == ("unknown",)


def test_rows_without_a_file_are_named_and_counted(tmp_path: Path) -> None:
    root = write_ham(tmp_path / "ham", ham_rows())
    (root / "HAM10000_images_part_2" / "ISIC_0024307.jpg").unlink()
    (root / "HAM10000_images_part_1" / "ISIC_0024308.jpg").write_bytes(b"")
    dataset = load_ham(root, max_unreadable=0.03)
    assert dataset.left_out == (
        f"{root / 'HAM10000_metadata.csv'}, line 3: no image file ISIC_0024307",
        f"{root / 'HAM10000_images_part_1' / 'ISIC_0024308.jpg'}: it is empty (0 bytes)",
    )
    assert len(dataset.train) + len(dataset.test) == 82
    with pytest.raises(DatasetFormatError, match=r"2 of 84 images cannot be used(?s:.)*ISIC_0024307"):
        load_ham(root, max_unreadable=0.01)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"dx": "naevus"}, ["line 4: dx is 'naevus'", "akiec, bcc"]),
        ({"image_id": "ISIC_0024306"}, ["line 4: image_id 'ISIC_0024306' stands in line 2 already"]),
    ],
)
def test_wrong_rows(tmp_path: Path, change: dict[str, str], parts: list[str]) -> None:
    rows = ham_rows()
    rows[2] |= change
    with pytest.raises(DatasetFormatError) as failure:
        load_ham(write_ham(tmp_path / "ham", rows))
    assert all(part in str(failure.value) for part in ["HAM10000_metadata.csv", *parts])


def test_missing_columns_and_files(tmp_path: Path) -> None:
    root = tmp_path / "ham"
    with pytest.raises(DatasetNotFoundError, match="metadata were not found"):
        load_ham(root)
    root.mkdir()
    (root / "HAM10000_metadata.csv").write_text(table(ham_rows()))
    with pytest.raises(DatasetNotFoundError, match="none of the 84 images"):
        load_ham(root)
    (root / "HAM10000_metadata.csv").write_text("image_id,label\nISIC_0024306,nv\n")
    with pytest.raises(
        DatasetFormatError, match="lacks the column lesion_id, dx; its columns are image_id, label"
    ):
        load_ham(root)


def test_the_standard_place(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="data-home/rarefl/datasets/ham10000"):
        ham10000.load(LoadOptions())
    write_ham(tmp_path / "data-home" / "rarefl" / "datasets" / "ham10000", ham_rows())
    assert ham10000.load(LoadOptions(image_size=8)).num_classes == 7


ISIC = isic2019.CLASS_NAMES
LESIONS = ("BCN_0001", "MSK4_0001", "HAM_0000001", "HAM_0000002", "")


def write_isic(root: Path, folder: str = "ISIC_2019_Training_Input", **changes: str) -> Path:
    """Write 80 images of all classes, each lesion of ten images, and some rows otherwise."""
    truth, metadata = [], []
    for number in range(80):
        name = f"ISIC_{number:07d}" + ("_downsampled" if number % 3 == 0 else "")
        save(root / folder / f"{name}.jpg", (number, number, number), (12, 9))
        one_hot = {key: f"{float(key == ISIC[number // 10])}" for key in (*ISIC, "UNK")}
        truth.append({"image": name} | one_hot)
        lesion = LESIONS[number % 5]
        metadata.append(
            {"image": name, "age_approx": "50", "lesion_id": lesion and f"{lesion}{number // 10}"}
        )
    truth[1] |= changes
    (root / isic2019.TRUTH).write_text(table(truth))
    (root / isic2019.METADATA).write_text(table(metadata))
    return root


def load_isic(root: Path, **options: object):  # type: ignore[no-untyped-def]
    return isic2019.load(LoadOptions(root, image_size=8, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "folder", [".", "ISIC_2019_Training_Input", "ISIC_2019_Training_Input/ISIC_2019_Training_Input"]
)
def test_isic(tmp_path: Path, folder: str) -> None:
    dataset = load_isic(write_isic(tmp_path / "isic", folder))
    assert dataset.card.class_names == ISIC
    assert dataset.sites.names == ("BCN", "HAM", "MSK", "unknown")
    expected = [0, 2, 1, 1, 3]
    for split, sites in ((dataset.train, dataset.sites.train), (dataset.test, dataset.sites.test)):
        numbers = [round(image.float().mean().item()) for image in split.images]
        assert split.labels.tolist() == [number // 10 for number in numbers]
        assert sites.tolist() == [expected[number % 5] for number in numbers]
    # Of each class: four lesions of two images and two images without one, so six groups, one for the test.
    assert len(set(dataset.train_groups.tolist())) == 8 * 5


def test_isic_centres_of_ham_images(tmp_path: Path) -> None:
    root = write_isic(tmp_path / "isic")
    names = [path.stem for path in sorted((root / "ISIC_2019_Training_Input").iterdir())]
    rows = [{"image_id": name, "dataset": "rosendahl"} for name in names[::5] + names[2::5]]
    (root / "HAM10000_metadata.csv").write_text(table(rows))
    assert load_isic(root).sites.names == ("BCN", "HAM", "HAM_rosendahl", "MSK", "unknown")


def test_unk_is_no_class(tmp_path: Path) -> None:
    root = write_isic(tmp_path / "isic", MEL="0", UNK="1")
    dataset = load_isic(root, max_unreadable=0.02)
    assert dataset.left_out == (f"{root / isic2019.TRUTH}, line 3: ISIC_0000001 is UNK, which is no class",)
    assert len(dataset.train) + len(dataset.test) == 79


@pytest.mark.parametrize(
    "changes",
    [
        {"MEL": "0.0"},
        {"NV": "1.0"},
        {"MEL": "0.5", "NV": "0.5"},
        {"MEL": "yes"},
        {"NV": "nan"},
        {"MEL": "2", "NV": "-1"},
    ],
)
def test_rows_that_are_not_one_hot(tmp_path: Path, changes: dict[str, str]) -> None:
    root = write_isic(tmp_path / "isic", **changes)
    with pytest.raises(DatasetFormatError, match=r"GroundTruth.csv, line 3: MEL, NV.*exactly one must be 1"):
        load_isic(root)


def test_isic_tables_are_required(tmp_path: Path) -> None:
    root = write_isic(tmp_path / "isic")
    (root / isic2019.METADATA).unlink()
    with pytest.raises(DatasetNotFoundError, match=r"ISIC_2019_Training_Metadata\.csv not found"):
        load_isic(root)
    with pytest.raises(
        DatasetNotFoundError, match=r"GroundTruth\.csv and ISIC_2019_Training_Metadata\.csv not found"
    ):
        load_isic(tmp_path / "nowhere")


def test_isic_tables_must_fit(tmp_path: Path) -> None:
    root = write_isic(tmp_path / "isic")
    lines = (root / isic2019.METADATA).read_text().splitlines()
    (root / isic2019.METADATA).write_text("\n".join(lines[:41]))
    with pytest.raises(
        DatasetFormatError, match=r"Metadata.csv: lacks 40 of .*ISIC_0000040 of its line 42\. Get both"
    ):
        load_isic(root)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["", *"pqrstuvw"]), st.integers(0, 6), st.sampled_from(SITES)),
        min_size=30,
        max_size=60,
    ),
    st.integers(0, 9),
)
def test_a_lesion_lies_at_one_client_and_on_one_side(
    cache_home: Path, images: list[tuple[str, int, str]], seed: int
) -> None:
    rows = [
        {"lesion_id": lesion, "image_id": f"ISIC_{number}", "dx": DX[label], "dataset": site}
        for number, (lesion, label, site) in enumerate(images)
    ]
    with tempfile.TemporaryDirectory() as folder:
        dataset = load_ham(write_ham(Path(folder) / "ham", rows), seed=seed)
        assert dataset.sites is not None
        first_site: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: row["image_id"]):
            first_site.setdefault(row["lesion_id"] or row["image_id"], row["dataset"])
        lesions: list[set[str]] = []
        for split, sites in ((dataset.train, dataset.sites.train), (dataset.test, dataset.sites.test)):
            lesions.append(set())
            for image, site in zip(split.images, sites, strict=True):
                row = rows[round(image.float().mean().item())]
                lesion = row["lesion_id"] or row["image_id"]
                lesions[-1].add(lesion)
                assert dataset.sites.names[site] == first_site[lesion]
        assert not lesions[0] & lesions[1]
