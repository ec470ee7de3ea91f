"""Image files in a folder for each class, of one site or of several."""

import logging
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.images.decoding import SUFFIXES
from datasets.images.image_files import Description, LabelledFiles, hidden, read_image_files
from datasets.names import did_you_mean

logger = logging.getLogger("rarefl")

NAME = "image-folder"
CLASSES = "classes.txt"
_SPLITS = ("train", "test")
_SITES_AND_CLASSES = 2  # folders between a split's folder and the images of a site's class
_LAYOUT = (
    "Images lie in ROOT/CLASS/ or, for several sites, in ROOT/SITE/CLASS/; with a test split of its own in "
    "ROOT/train/ and ROOT/test/, each laid out so."
)


@dataclass
class _Tree:
    """What lies below a folder, as names of folders and files from there on."""

    images: list[tuple[str, ...]] = field(default_factory=list)
    empty: list[tuple[str, ...]] = field(default_factory=list)
    """Folders with neither images nor folders."""
    ignored: list[str] = field(default_factory=list)
    """Files that are no images."""


def load(options: LoadOptions) -> ImageDataset:
    """Return the images of a folder whose sub-folders are the classes, or sites with classes in them.

    Images lie in ``root/<class>/``, or ``root/<site>/<class>/``, where each site is a client of the natural
    federation. Where there are ``root/train`` and ``root/test``, each holds one of these layouts; else 20 %
    of each class are drawn by the seed. Classes are the lines of ``root/classes.txt`` if it exists, so that
    sites that see only some of them agree on the labels; else all class folders, sorted by name. Hidden
    files, and files that are no images, are ignored.

    Raises
    ------
    DatasetNotFoundError
        If no root is given, or it is no folder.
    DatasetFormatError
        If a file or folder is where it cannot be, a class has no image, there are fewer than two classes, or
        too many images are damaged.
    """
    root = options.root
    if root is None:
        raise DatasetNotFoundError(f"data.root is empty; {NAME} needs the folder of the images. {_LAYOUT}")
    if not os.path.isdir(root):
        found = (
            "it is no folder" if os.path.exists(root) else "there is no such folder, or it may not be read"
        )
        raise DatasetNotFoundError(f"data.root = {str(root)!r}: {found}. {_LAYOUT}")
    splits = _splits(root)
    trees = {split: _tree(root / split) for split in splits}
    with_sites = _with_sites(root, trees)
    images = [(split, *path) for split, tree in trees.items() for path in tree.images]
    empty = [(split, *path) for split, tree in trees.items() for path in tree.empty]
    class_at = 1 + with_sites
    listed = _listed_classes(root)
    class_of = [_plain(path[class_at]) for path in images]
    folders = (path[: class_at + 1] for path in (*images, *empty) if len(path) > class_at)
    _require_distinct(root, folders, listed)
    if with_sites and (lonely := [path for path in empty if len(path) == class_at]):
        raise DatasetFormatError(
            f"{root.joinpath(*lonely[0])}: this site's folder holds no class folder. Remove it or fill it."
        )
    class_names = _class_names(
        root, listed, Counter(class_of), [path for path in empty if len(path) > class_at]
    )
    _tell_ignored(root, [name for tree in trees.values() for name in tree.ignored])
    position = {name: label for label, name in enumerate(class_names)}
    return read_image_files(
        Description(NAME, f"Images in {root.name}", str(root), "that of the images"),
        LabelledFiles(
            root=root,
            class_names=class_names,
            names=["/".join(part for part in path if part) for path in images],
            labels=[position[name] for name in class_of],
            sites=[_plain(path[1]) for path in images] if with_sites else None,
            in_test=[path[0] == "test" for path in images] if splits == _SPLITS else None,
        ),
        options,
    )


def _splits(root: Path) -> tuple[str, ...]:
    """Return the two folders of a published split, or ("",) where there is none."""
    there = [name for name in _SPLITS if (root / name).is_dir()]
    if not there:
        return ("",)
    if len(there) == 1:
        (missing,) = set(_SPLITS) - set(there)
        raise DatasetFormatError(
            f"{root}: there is a folder {there[0]} and no folder {missing}. Add it, or set data.root to "
            f"{root / there[0]} and let the test images be drawn."
        )
    beside = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not hidden(entry.name))
    if others := [name for name in beside if name not in _SPLITS]:
        raise DatasetFormatError(
            f"{root / others[0]}: this folder lies beside train and test. Move it out of {root}, or its "
            "images into one of the two."
        )
    return _SPLITS


def _tree(folder: Path) -> _Tree:
    tree = _Tree()
    _scan(folder, (), {_identity(folder): folder}, tree)
    if not tree.images:
        suffixes = ", ".join(SUFFIXES)
        raise DatasetFormatError(f"{folder}: there is no image file ({suffixes}) in its folders. {_LAYOUT}")
    return tree


def _scan(folder: Path, path: tuple[str, ...], above: dict[tuple[int, int], Path], tree: _Tree) -> None:
    holds_anything = False
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            if hidden(entry.name) or (not path and entry.name == CLASSES):
                continue
            place = folder / entry.name
            _require_utf8(place)
            if entry.is_dir():
                holds_anything = True
                _enter(place, (*path, entry.name), above, tree)
            elif not entry.name.lower().endswith(SUFFIXES):
                tree.ignored.append(str(place))
            elif path:
                holds_anything = True
                tree.images.append((*path, entry.name))
            else:
                raise DatasetFormatError(f"{place}: this image is in no class folder. Move it. {_LAYOUT}")
    except OSError as error:
        raise DatasetFormatError(
            f"{error.filename or folder}: cannot be read: {error.strerror}. Allow reading it, or leave "
            "it out."
        ) from error
    if path and not holds_anything:
        tree.empty.append(path)


def _require_utf8(place: Path) -> None:
    """Raise DatasetFormatError if the name can stand in no message, result or table."""
    try:
        place.name.encode()
    except UnicodeEncodeError:
        raise DatasetFormatError(
            f"{place.parent}: the name of {os.fsencode(place.name)!r} in this folder is no UTF-8 text. "
            "Rename it."
        ) from None


def _enter(folder: Path, path: tuple[str, ...], above: dict[tuple[int, int], Path], tree: _Tree) -> None:
    identity = _identity(folder)
    if identity in above:
        raise DatasetFormatError(
            f"{folder}: this link leads back to {above[identity]}, in which it lies. Remove the link."
        )
    if len(path) > _SITES_AND_CLASSES:
        raise DatasetFormatError(
            f"{folder}: this folder lies deeper than a class of a site. Move its images up. {_LAYOUT}"
        )
    _scan(folder, path, {**above, identity: folder}, tree)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _with_sites(root: Path, trees: dict[str, _Tree]) -> bool:
    """Return whether all images lie in a class folder of a site; False if all lie in a class folder."""
    example = {
        len(path): root.joinpath(split, *path) for split, tree in trees.items() for path in tree.images
    }
    if len(example) > 1:
        in_class, in_site = (example[depth] for depth in sorted(example))
        raise DatasetFormatError(
            f"{root}: some images lie in a folder of their class, such as {in_class}, and some one folder "
            f"deeper, such as {in_site}. Lay them out in one way. {_LAYOUT}"
        )
    return _SITES_AND_CLASSES + 1 in example


def _listed_classes(root: Path) -> tuple[str, ...] | None:
    """Return the lines of classes.txt; line order is label order."""
    path = root / CLASSES
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(f"{path}: cannot be read: {error}. Save it as UTF-8 text.") from error
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name = _plain(line.strip())
        if name in lines:
            raise DatasetFormatError(
                f"{path}, line {number}: class {name!r} stands in line {lines[name]} already. Name each once."
            )
        if name:
            lines[name] = number
    return tuple(lines)


def _class_names(
    root: Path, listed: tuple[str, ...] | None, images: Counter[str], empty: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the classes in label order.

    Parameters
    ----------
    images
        Number of images of each class.
    empty
        Class folders without images.
    """
    names = listed if listed is not None else tuple(sorted(images))
    for path in empty:
        if _plain(path[-1]) not in names and listed is None:
            raise DatasetFormatError(
                f"{root.joinpath(*path)}: this class folder holds no image, and no other folder has images "
                f"of the class. Fill it or remove it, or name all classes in {root / CLASSES}."
            )
    for name in _unlisted(names, [*images, *(_plain(path[-1]) for path in empty)]):
        raise DatasetFormatError(
            f"{root / CLASSES}: it does not name the class of the folder {name!r}; it names "
            f"{', '.join(names) or 'nothing'}{did_you_mean(name, names)}. Add a line or rename the folder."
        )
    if len(names) < 2:
        raise DatasetFormatError(
            f"{root}: there is one class alone, {', '.join(names)!r}; there must be two or more. {_LAYOUT} "
            f"If other sites have other classes, name all in {root / CLASSES}."
        )
    return names


def _require_distinct(root: Path, folders: Iterable[tuple[str, ...]], listed: tuple[str, ...] | None) -> None:
    """Raise DatasetFormatError if two class folders have names that a reader takes for one.

    Names are compared without letter case, spaces and Unicode forms. Classes that classes.txt lists are meant
    as they stand. Folders of one name in two Unicode forms are one class, but not beside each other.
    """
    alike: dict[str, tuple[str, ...]] = {}
    beside: dict[tuple[str, ...], tuple[str, ...]] = {}
    for folder in dict.fromkeys(folders):
        name = _plain(folder[-1])
        key = "".join(unicodedata.normalize("NFKC", name).casefold().split())
        if listed is not None and name in listed:
            key = f"{key}/{name}"
        first = alike.setdefault(key, folder)
        if _plain(first[-1]) == name:
            first = beside.setdefault((*folder[:-1], name), folder)
            if first == folder:
                continue
        raise DatasetFormatError(
            f"{root}: the class folders {str(root.joinpath(*first))!r} and {str(root.joinpath(*folder))!r} "
            "have names that differ in letter case, spaces or Unicode form alone. Give them one name, or, if "
            f"they are two classes, name all classes in {root / CLASSES}."
        )


def _unlisted(names: Sequence[str], used: Iterable[str]) -> list[str]:
    return [name for name in used if name not in names]


def _tell_ignored(root: Path, ignored: Sequence[str]) -> None:
    if ignored:
        logger.info("%s: %d files are no images and were ignored, such as %s", root, len(ignored), ignored[0])


def _plain(name: str) -> str:
    """Return a name in composed Unicode: macOS gives folder names decomposed."""
    return unicodedata.normalize("NFC", name)
