"""Going through folders of images, hidden files left out: what lies in one, and all below it.

What a user's images are: from the folders they lie in, or from a table.
"""

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from asrnorm.core.errors import InputError
from asrnorm.data.image import ENDINGS
from asrnorm.data.image_table import Sample, read_table, refuse_two_spellings, to_nfc


def folders_in(place: Path) -> list[Path]:
    """Return the folders in a folder, by name.

    Raises:
        InputError: it cannot be read.
    """
    return sorted((path for path in _entries(place) if path.is_dir()), key=lambda path: path.name)


def direct_images(folder: Path) -> list[str]:
    """Return the names of the images that lie in a folder itself."""
    return sorted(path.name for path in _entries(folder) if path.suffix.lower() in ENDINGS and not path.is_dir())


def images_below(place: Path, others: Counter[str]) -> Iterator[Path]:
    """Go through the images of a folder and all below it, and count the other files by their endings.

    Raises:
        InputError: a folder that cannot be read, or what is no file and called an image.
    """
    for path in _files(place):
        if path.suffix.lower() not in ENDINGS:
            others[path.suffix.lower() or path.name] += 1
            continue
        if path.is_fifo() or path.is_socket():  # which would be waited for without end
            raise InputError(f"{path}: no file, though it is called an image; remove it")
        yield path


def _files(place: Path) -> Iterator[Path]:
    """Go through a folder and all below it, linked ones too, each once: links may lead in circles.

    Links come last, so that files keep the names that they have without them. A link to a folder that `place` lies in
    is passed over: what else is in there does not belong to `place`.
    """
    above = {os.path.realpath(folder) for start in (place.absolute(), place.resolve()) for folder in start.parents}
    folders, links, seen = [place], list[Path](), set[str]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        for path in sorted(_entries(folder), key=lambda path: path.name):
            if not path.is_dir():
                yield path
            elif not path.is_symlink():
                folders.append(path)
            elif os.path.realpath(path) not in above:
                links.append(path)


def _entries(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [place / entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}; check its permissions") from None


_MOST_NAMED = 8
_DOMAINS, _CLASSES = "<domain>/<class>/<image>", "<class>/<image>"
_log = logging.getLogger(__name__)


def list_images(
    root: Path, domains: Collection[str] | None = None, *, known: Collection[str] = (), skip_empty: bool = False
) -> list[Sample]:
    """Return the images under `root`, or those that the table `root` names, in a fixed order.

    Args:
        root: a folder `<domain>/<class>/<image>`, or a `.csv` or `.jsonl` file with the columns path, label, domain;
            relative paths start at the table's folder.
        domains: those that are looked at; by default all.
        known: names that are classes for certain, in one Unicode form.
        skip_empty: pass over folders of classes without images, and tell of them; training needs every class.

    Raises:
        InputError: nothing there, an unreadable folder, an empty class, or a line that cannot be understood.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     place = Path(folder) / "photo" / "dog"
        ...     place.mkdir(parents=True)
        ...     (place / "1.jpg").touch()
        ...     [(sample.domain, sample.label, sample.key) for sample in list_images(Path(folder))]
        [('photo', 'dog', 'photo/dog/1.jpg')]
    """
    if root.is_file():
        return [sample for sample in read_table(root) if domains is None or sample.domain in domains]
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected a folder <domain>/<class>/<image> or a .csv or .jsonl file")
    chosen = [folder for folder in folders_in(root) if domains is None or folder.name in domains]
    return _list_classes(root, chosen, _DOMAINS, known, skip_empty=skip_empty)


def list_domains(root: Path) -> tuple[str, ...]:
    """Return the names of the folders under `root`, or of the domains that the table `root` names.

    Raises:
        InputError: as `list_images`.
    """
    if root.is_dir():
        return tuple(folder.name for folder in folders_in(root))
    return tuple(dict.fromkeys(sample.domain for sample in list_images(root)))


def is_one_domain(root: Path) -> bool:
    """Tell whether the folders under `root` hold images themselves, so that they are classes and not domains.

    Of every folder with images most must lie in it directly: a few beside the folders of classes do not make a domain
    a class.

    Raises:
        InputError: a folder that cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "photo" / "dog").mkdir(parents=True)
        ...     (Path(folder) / "photo" / "dog" / "1.jpg").touch()
        ...     is_one_domain(Path(folder)), is_one_domain(Path(folder) / "photo")
        (False, True)
    """
    direct = {folder: len(direct_images(folder)) for folder in folders_in(root)}
    deeper = {folder: sum(1 for _ in images_below(folder, Counter())) - count for folder, count in direct.items()}
    return any(direct.values()) and all(direct[folder] >= deeper[folder] for folder in direct)


def list_labeled(root: Path, *, known: Collection[str] = (), skip_empty: bool = False) -> list[Sample]:
    """Return the images of one domain, `<class>/<image>` under `root`, or those that the table `root` names.

    Args:
        root: the folder, or a table.
        known: names that are classes whatever lies in them, in one Unicode form.
        skip_empty: as in `list_images`.

    Raises:
        InputError: as `list_images`, or folders that are not known hold folders alone: these may be the classes.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "dog").mkdir()
        ...     (Path(folder) / "dog" / "1.jpg").touch()
        ...     [(sample.label, sample.key) for sample in list_labeled(Path(folder))]
        [('dog', 'dog/1.jpg')]
    """
    if root.is_file():
        return read_table(root)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give a folder <class>/<image>, or a .csv or .jsonl file")
    for label in folders_in(root):
        if to_nfc(label.name) not in known and folders_in(label) and not direct_images(label):
            raise InputError(
                f"{label}: holds folders, not images; if {root} is <domain>/<class>/<image>, give one domain: {label}"
            )
    return _list_classes(root, [root], _CLASSES, known, skip_empty=skip_empty)


def find_images(folder: Path) -> list[Path]:
    """Return the images below a folder, sorted, relative to it.

    Raises:
        InputError: the folder or any image in it is missing.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give one with images in it")
    others: Counter[str] = Counter()
    images = sorted(path.relative_to(folder) for path in images_below(folder, others) if path.is_file())
    if not images:
        raise InputError(f"{folder} has no images ({', '.join(sorted(ENDINGS))})")
    _tell_of_others(folder, others)
    return images


def refuse_links_to_one(root: Path, samples: list[Sample]) -> None:
    """Refuse an image under two names, linked or hard-linked: it could be trained on and chosen by, or count twice.

    Raises:
        InputError: with both names.
    """
    folders = {folder for sample in samples for folder in sample.path.parents if folder.is_relative_to(root)} - {root}
    linked = any(path.is_symlink() for path in (*folders, *(sample.path for sample in samples)))
    seen: dict[tuple[int, int] | str, str] = {}
    for sample in samples:
        try:
            status = sample.path.stat()
        except OSError:  # told where it is read
            continue
        if not linked and status.st_nlink < 2:
            continue
        # Numbers of files are asked for where there are hard links alone: not every file system has them.
        place = (status.st_dev, status.st_ino) if status.st_nlink > 1 else os.path.realpath(sample.path)
        if place in seen:
            raise InputError(f"{root}: {seen[place]} and {sample.key} are one file; remove the link")
        seen[place] = sample.key


def collect_classes(samples: list[Sample], root: Path) -> tuple[str, ...]:
    """Return the class names that every domain shares, in one Unicode form; `order_classes` of them as first spelled.

    Raises:
        InputError: domains differ in their classes; the message shows how.

    Example:
        >>> collect_classes([Sample(Path("a"), "a", "10", "x"), Sample(Path("b"), "b", "9", "x")], Path("."))
        ('9', '10')
    """
    found: dict[str, set[str]] = {}
    spelled: dict[str, str] = {}
    for sample in samples:
        name = to_nfc(sample.label)
        spelled.setdefault(name, sample.label)
        found.setdefault(sample.domain, set()).add(name)
    union = set().union(*found.values())
    lacking = [f"{domain} lacks {_name(union - own)}" for domain, own in found.items() if own != union]
    if lacking:
        raise InputError(f"{root}: the domains have different classes: {'; '.join(lacking)}")
    return tuple(map(to_nfc, order_classes(spelled.values())))


def _name(classes: set[str]) -> str:
    """Return the names in a row, those in quotes that start or end in a space."""
    return ", ".join(name if name == name.strip() else repr(name) for name in sorted(classes))


def order_classes(names: Collection[str]) -> tuple[str, ...]:
    """Return names of classes in order; numbers are ordered as numbers.

    Example:
        >>> order_classes({"10", "9"}), order_classes({"b10", "b9"})
        (('9', '10'), ('b10', 'b9'))
    """
    numeric = all(name.isascii() and name.isdigit() and len(name) < 19 for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name) if numeric else (0, name)))


def _list_classes(
    root: Path, domains: list[Path], expected: str, known: Collection[str], *, skip_empty: bool
) -> list[Sample]:
    samples: list[Sample] = []
    empty: list[Path] = []
    others: Counter[str] = Counter()
    for domain in domains:
        for label in _class_folders(domain):
            images = sorted(images_below(label, others), key=lambda path: path.as_posix())
            samples += [Sample(path, path.relative_to(root).as_posix(), label.name, domain.name) for path in images]
            empty += [] if images else [label]
    if empty and not skip_empty:
        raise InputError(
            f"{empty[0]}: no image in it ({', '.join(sorted(ENDINGS))}); add some, or name the domains to use with "
            "both --source and --target"
        )
    if not samples:
        raise InputError(_describe_lack(root, expected))
    _tell_of_empty(root, empty)
    _tell_of_others(root, others)
    _tell_of_strays(expected, *dict.fromkeys((root, *domains)))
    for domain in domains:
        _tell_of_deeper(domain, [label for label in _class_folders(domain) if to_nfc(label.name) not in known])
    return samples


def _class_folders(domain: Path) -> list[Path]:
    folders = folders_in(domain)
    refuse_two_spellings(str(domain), (folder.name for folder in folders))
    return folders


def _describe_lack(root: Path, expected: str) -> str:
    if direct_images(root):
        return f"{root}: holds images, but no folders of classes; expected {expected}: give the folder above it"
    if is_one_domain(root):
        return f"{root}: one domain, whose folders are its classes: choose none of them, or give {root.parent}"
    return f"{root}: no images in it; expected {expected} ({', '.join(sorted(ENDINGS))})"


def _tell_of_empty(root: Path, folders: list[Path]) -> None:
    if folders:
        named = _name_some([folder.relative_to(root).as_posix() for folder in folders])
        _log.warning("%s: folders of classes without an image are passed over: %s", root, named)


def _tell_of_others(root: Path, others: Counter[str]) -> None:
    if others:
        endings = ", ".join(sorted(others)[:_MOST_NAMED]) + (", ..." if len(others) > _MOST_NAMED else "")
        _log.warning("%s: %s files that are called no images (%s) are passed over", root, others.total(), endings)


def _tell_of_strays(expected: str, *places: Path) -> None:
    """Tell of images that lie beside folders of classes or domains: they have no class."""
    for place in places:
        if strays := direct_images(place):
            named = _name_some(strays)
            _log.warning("%s: images in no folder of a class are passed over: %s; expected %s", place, named, expected)


def _tell_of_deeper(domain: Path, classes: list[Path]) -> None:
    """Tell where all classes of a domain hold the same folders and no images: those may be the classes."""
    below = {tuple(folder.name for folder in folders_in(label)) for label in classes}
    if len(classes) > 1 and len(below) == 1 and len(names := below.pop()) > 1 and not any(map(direct_images, classes)):
        taken, inside = _name_some([label.name for label in classes]), _name_some(list(names))
        _log.warning(
            "%s: taken for classes: %s; each has %s: if those are the classes, start there", domain, taken, inside
        )


def _name_some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
