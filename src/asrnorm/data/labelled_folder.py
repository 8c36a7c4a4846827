"""Images of new places for a network that is trained already: labelled by name, without a source beside them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.folder_listing import is_one_domain, list_domains, list_images, list_labeled, refuse_links_to_one
from asrnorm.data.image_set import FileSet
from asrnorm.data.image_table import Sample, to_nfc

_FORMS = "<class>/<image> of one place or <place>/<class>/<image>"


def open_places(root: Path, classes: Sequence[str], image_size: tuple[int, int]) -> dict[str, FileSet]:
    """Return the images of each place by its name; they are decoded when they are looked at.

    A place may lack classes, their folders may be empty, and it may not have others. One without any image is given
    too: whoever asked for it should hear of it.

    Args:
        root: a folder `<class>/<image>` of one place, or `<place>/<class>/<image>`, or a `.csv` or `.jsonl` file with
            the columns path, label, domain.
        classes: those that the network knows, in the order of its outputs.
        image_size: height and width to which every image is resized.

    Raises:
        InputError: nothing there, or an image under two names.
        UnknownNameError: a class that is none of `classes`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "dog").mkdir()
        ...     (Path(folder) / "dog" / "1.jpg").touch()
        ...     places = open_places(Path(folder), ["cat", "dog"], (8, 8))
        ...     [data.labels.tolist() for data in places.values()]
        [[1]]
    """
    root = root.absolute()
    samples, empty = _list(root, classes)
    by_place: dict[str, list[Sample]] = {}
    for sample in samples:
        by_place.setdefault(sample.domain, []).append(sample)
    by_place |= {place: [] for place in empty}
    numbers = {to_nfc(name): number for number, name in enumerate(classes)}
    for place, own in by_place.items():
        refuse_links_to_one(root, own)
        if unknown := next((sample.label for sample in own if to_nfc(sample.label) not in numbers), None):
            raise UnknownNameError(f"{root}: {describe_unknown(f'class of {place!r},', unknown, classes)}")
    return {
        place: FileSet(
            tuple(sample.path for sample in own),
            np.array([numbers[to_nfc(sample.label)] for sample in own], np.int64),
            image_size,
        )
        for place, own in by_place.items()
    }


def part_unreadable(images: FileSet) -> tuple[FileSet, list[Path]]:
    """Return the images that can be read, and the files of the others.

    Example:
        >>> part_unreadable(FileSet((Path("gone.png"),), np.array([0]), (8, 8)))[1]
        [PosixPath('gone.png')]
    """
    good, bad = [], []
    for row, path in enumerate(images.paths):
        try:
            images.read(row)
        except InputError:
            bad.append(path)
        else:
            good.append(row)
    return images.take(np.array(good, np.int64)), bad


def _list(root: Path, classes: Sequence[str]) -> tuple[list[Sample], list[str]]:
    """List a table, the places of a folder, or a folder that is one itself: its folders are called as classes are.

    Beside the images, the places that have folders of classes and no image in any of them.
    """
    if not root.is_dir():
        if not root.is_file():
            raise InputError(f"{root}: no such folder; expected {_FORMS}, or a .csv or .jsonl file")
        return list_images(root), []
    folders = list_domains(root)
    if not folders:
        raise InputError(f"{root}: no folders in it; expected {_FORMS}")
    known, outer = set(map(to_nfc, classes)), set(map(to_nfc, folders))
    within = {folder: list_domains(root / folder) for folder in folders}
    inner = {to_nfc(name) for names in within.values() for name in names}
    if known.isdisjoint(outer) and (not known.isdisjoint(inner) or not is_one_domain(root)):
        samples = list_images(root, known=known, skip_empty=True)
        filled = {sample.domain for sample in samples}
        return samples, [folder for folder, names in within.items() if names and folder not in filled]
    return list_labeled(root, known=known, skip_empty=True), []
