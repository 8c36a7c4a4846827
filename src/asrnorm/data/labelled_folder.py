"""Images from new domains to evaluate a trained network on, labelled by the names of its classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asrnorm.core.errors import InputError
from asrnorm.data.class_names import keep_known, rename_classes
from asrnorm.data.folder_listing import check_distinct_files, is_one_domain, list_domains, list_images, list_one_domain
from asrnorm.data.image_set import FileSet
from asrnorm.data.image_table import Sample, group_by_domain, to_file_set, to_nfc

_EXPECTED = "<class>/<image> of one domain or <domain>/<class>/<image>"


def open_domains(
    root: Path,
    classes: Sequence[str],
    image_size: tuple[int, int],
    *,
    unknown: str = "skip",
    aliases: str | Path | None = None,
) -> dict[str, FileSet]:
    """Return the images of each domain by its name, with labels in the order of a network's `classes`.

    `root` is a folder `<class>/<image>` of one domain, or `<domain>/<class>/<image>`, or a table (`read_table`);
    `aliases` a file for `rename_classes`. A domain may lack classes, and class folders may be empty. A domain without
    any image is returned too, so that the caller can report it. Images of other classes are left out with a warning,
    or refused with `unknown="refuse"`.
    """
    root = root.absolute()
    samples, empty = _list(root, classes)
    domains = group_by_domain(rename_classes(samples, aliases)) | {domain: [] for domain in empty}
    known = list(map(to_nfc, classes))
    for domain, own in domains.items():
        check_distinct_files(root, own)
        advice = "call folders as the run calls its classes, or say so in a file, --set suite.aliases=FILE"
        domains[domain] = keep_known(own, known, root, unknown=unknown, advice=advice)
    return {domain: to_file_set(own, classes, image_size) for domain, own in domains.items()}


def split_unreadable(images: FileSet) -> tuple[FileSet, list[Path]]:
    """Return the images that can be read, and the files of the others."""
    readable, unreadable = [], []
    for row, path in enumerate(images.paths):
        try:
            images.read(row)
        except InputError:
            unreadable.append(path)
        else:
            readable.append(row)
    return images.take(np.array(readable, np.int64)), unreadable


def _list(root: Path, classes: Sequence[str]) -> tuple[list[Sample], list[str]]:
    """Return the images, and the domains without any; a folder with subfolders named like classes is one domain."""
    if root.is_file():
        return list_images(root), []
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected {_EXPECTED}, or a .csv or .jsonl file")
    inner = {folder: list_domains(root / folder) for folder in list_domains(root)}
    if not inner:
        raise InputError(f"{root}: no folders in it; expected {_EXPECTED}")
    known = set(map(to_nfc, classes))
    if known.isdisjoint(map(to_nfc, inner)):
        has_inner = any(to_nfc(name) in known for names in inner.values() for name in names)
        if has_inner or not is_one_domain(root):
            samples = list_images(root, known=known, skip_empty=True)
            with_images = {sample.domain for sample in samples}
            return samples, [folder for folder, names in inner.items() if names and folder not in with_images]
    return list_one_domain(root, known=known, skip_empty=True), []
