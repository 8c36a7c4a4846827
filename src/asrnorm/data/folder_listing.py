"""Listing of a user's images, from the folders that they are in or from a table."""

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from asrnorm.core.errors import InputError, shorten_list
from asrnorm.data.image import EXTENSIONS
from asrnorm.data.image_table import Sample, check_spelling, group_by_domain, read_table, to_nfc

_DOMAINS, _CLASSES = "<domain>/<class>/<image>", "<class>/<image>"
_log = logging.getLogger(__name__)

SkipEmpty = bool | Collection[str]


def list_images(
    root: Path, domains: Collection[str] | None = None, *, known: Collection[str] = (), skip_empty: SkipEmpty = False
) -> list[Sample]:
    """Return the images of a folder `<domain>/<class>/<image>`, or of a table (`read_table`), in a fixed order.

    `domains` restricts the listing to these; `known` are names that are certainly classes, in NFC. Class folders
    without images are skipped with a warning in the domains `skip_empty`, or in all if it is `True`; elsewhere they are
    an error.
    """
    if root.is_file():
        return [sample for sample in read_table(root) if domains is None or sample.domain in domains]
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected a folder {_DOMAINS} or a .csv or .jsonl file")
    chosen = [folder for folder in _subfolders(root) if domains is None or folder.name in domains]
    return _list_classes(root, chosen, _DOMAINS, known, skip_empty=skip_empty)


def list_one_domain(root: Path, *, known: Collection[str] = (), skip_empty: bool = False) -> list[Sample]:
    """Return the images of one domain, `<class>/<image>` under `root`, or those of the table `root`.

    Arguments and errors are those of `list_images`. A folder that is not a known class must not hold only folders,
    which may be the classes.
    """
    if root.is_file():
        return read_table(root)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give a folder {_CLASSES}, or a .csv or .jsonl file")
    for label in _subfolders(root):
        if to_nfc(label.name) not in known and _subfolders(label) and not _direct_images(label):
            raise InputError(
                f"{label}: contains folders, not images; if {root} is {_DOMAINS}, give one domain: {label}"
            )
    return _list_classes(root, [root], _CLASSES, known, skip_empty=skip_empty)


def list_domains(root: Path) -> tuple[str, ...]:
    """Return the names of the folders under `root`, or of the domains of the table `root`."""
    if root.is_dir():
        return tuple(folder.name for folder in _subfolders(root))
    return tuple(group_by_domain(list_images(root)))


def is_one_domain(root: Path) -> bool:
    """Return whether the folders under `root` are classes, because they contain images themselves, and not domains.

    In every folder at least half of the images must be direct: a few images next to class folders do not make a domain
    a class.
    """
    counts = [(len(_direct_images(folder)), sum(1 for _ in _walk_images(folder))) for folder in _subfolders(root)]
    return any(direct for direct, _ in counts) and all(2 * direct >= total for direct, total in counts)


def find_images(folder: Path) -> list[Path]:
    """Return the images below a folder, sorted, relative to it; raise `InputError` if there are none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give one with images in it")
    others: Counter[str] = Counter()
    images = sorted(path.relative_to(folder) for path in _walk_images(folder, others) if path.is_file())
    if not images:
        raise InputError(f"{folder} has no images ({', '.join(sorted(EXTENSIONS))})")
    _warn_of_others(folder, others)
    return images


def check_distinct_files(root: Path, samples: list[Sample]) -> None:
    """Raise `InputError` if two names lead to one file, by links: it could be in training and validation."""
    folders = {folder for sample in samples for folder in sample.path.parents if folder.is_relative_to(root)} - {root}
    has_links = any(path.is_symlink() for path in (*folders, *(sample.path for sample in samples)))
    seen: dict[tuple[int, int] | str, str] = {}
    for sample in samples:
        try:
            status = sample.path.stat()
        except OSError:  # reported when it is read
            continue
        if not has_links and status.st_nlink < 2:
            continue
        # Inode numbers only where there are hard links: not every file system has them.
        file = (status.st_dev, status.st_ino) if status.st_nlink > 1 else os.path.realpath(sample.path)
        if file in seen:
            raise InputError(f"{root}: {seen[file]} and {sample.key} are one file; remove the link")
        seen[file] = sample.key


def collect_classes(samples: list[Sample], root: Path, sources: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the class names in NFC, ordered by `order_classes` as first spelled; all `sources` must share them.

    By default every domain is a source.
    """
    spelled: dict[str, str] = {}
    for sample in samples:
        spelled.setdefault(to_nfc(sample.label), sample.label)
    groups = group_by_domain(s for s in samples if sources is None or s.domain in sources)
    used = {to_nfc(sample.label) for own in groups.values() for sample in own}
    missing = []
    for domain, own in groups.items():
        if absent := used - {to_nfc(sample.label) for sample in own}:
            # Quotes show a space at either end.
            names = (name if name == name.strip() else repr(name) for name in sorted(absent))
            missing.append(f"{domain} lacks {', '.join(names)}")
    if missing:
        raise InputError(
            f"{root}: the domains to train on have different classes: {'; '.join(missing)}; if some are the same under "
            "other names, --set suite.aliases=FILE; to train on one of the domains, --source NAME"
        )
    return tuple(map(to_nfc, order_classes([name for key, name in spelled.items() if key in used])))


def order_classes(names: Collection[str]) -> tuple[str, ...]:
    """Return class names sorted, as numbers if all of them are numbers."""
    numeric = all(name.isascii() and name.isdigit() and len(name) < 19 for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name) if numeric else (0, name)))


def _list_classes(
    root: Path, domains: list[Path], expected: str, known: Collection[str], *, skip_empty: SkipEmpty
) -> list[Sample]:
    samples: list[Sample] = []
    empty: list[str] = []
    others: Counter[str] = Counter()
    for domain in domains:
        labels = _subfolders(domain)
        check_spelling(str(domain), (label.name for label in labels))
        for label in labels:
            images = sorted(_walk_images(label, others), key=lambda path: path.as_posix())
            samples += [Sample(path, path.relative_to(root).as_posix(), label.name, domain.name) for path in images]
            empty += [] if images else [label.relative_to(root).as_posix()]
            if not images and not (skip_empty is True or (skip_empty and domain.name in skip_empty)):
                raise InputError(
                    f"{label}: no image in it ({', '.join(sorted(EXTENSIONS))}); add some, remove the folder, or name "
                    "the domains to use with both --source and --target"
                )
    if not samples:
        raise InputError(_describe_lack(root, expected))
    if empty:
        _log.warning("%s: skipped class folders without images: %s", root, shorten_list(empty))
    _warn_of_others(root, others)
    for folder in dict.fromkeys((root, *domains)):
        if strays := _direct_images(folder):
            named = shorten_list(strays)
            _log.warning("%s: skipped images that are in no class folder: %s; expected %s", folder, named, expected)
    for domain in domains:
        _warn_of_deeper_classes(domain, known)
    return samples


def _describe_lack(root: Path, expected: str) -> str:
    if _direct_images(root):
        return f"{root}: has images, but no class folders; expected {expected}: give the folder above it"
    if is_one_domain(root):
        above = root.parent
        return f"{root}: one domain, whose folders are its classes; leave out --source and --target, or give {above}"
    return f"{root}: no images in it; expected {expected} ({', '.join(sorted(EXTENSIONS))})"


def _warn_of_others(root: Path, others: Counter[str]) -> None:
    if count := others.total():
        files = "file that is not an image" if count == 1 else "files that are not images"
        _log.warning("%s: skipped %s %s (%s)", root, count, files, shorten_list(sorted(others)))


def _warn_of_deeper_classes(domain: Path, known: Collection[str]) -> None:
    """Warn if all classes of a domain contain the same folders and no images: those may be the classes."""
    classes = [label for label in _subfolders(domain) if to_nfc(label.name) not in known]
    below = {tuple(folder.name for folder in _subfolders(label)) for label in classes}
    if len(classes) < 2 or len(below) > 1 or any(map(_direct_images, classes)):
        return
    if len(names := below.pop()) > 1:
        outer, inner = shorten_list([label.name for label in classes]), shorten_list(list(names))
        _log.warning("%s: classes are %s; each has %s: if those are the classes, start there", domain, outer, inner)


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir()]


def _direct_images(folder: Path) -> list[str]:
    return [path.name for path in _entries(folder) if path.suffix.lower() in EXTENSIONS and not path.is_dir()]


def _walk_images(folder: Path, others: Counter[str] | None = None) -> Iterator[Path]:
    """Yield the images of a folder and all below it; count other files by extension in `others`."""
    for path in _walk(folder):
        if path.suffix.lower() in EXTENSIONS:
            if path.is_fifo() or path.is_socket():  # reading one would block
                raise InputError(f"{path}: not a regular file, though it is named like an image; remove it")
            yield path
        elif others is not None:
            others[path.suffix.lower() or path.name] += 1


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files of a folder and all below it; linked folders are entered once, since links may form cycles.

    Links are followed last, so that files keep the paths that they have without links. A link to a folder that contains
    `root` is skipped: the other files in there do not belong to `root`.
    """
    above = {os.path.realpath(folder) for start in (root.absolute(), root.resolve()) for folder in start.parents}
    folders, links, seen = [root], list[Path](), set[str]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        for path in _entries(folder):
            if not path.is_dir():
                yield path
            elif not path.is_symlink():
                folders.append(path)
            elif os.path.realpath(path) not in above:
                links.append(path)


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, sorted by name, without hidden files."""
    try:
        with os.scandir(folder) as entries:  # `iterdir` would only open the folder later
            return [folder / name for name in sorted(entry.name for entry in entries) if not name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}; check its permissions") from None
