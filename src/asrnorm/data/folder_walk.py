"""Going through folders of images, hidden files left out: what lies in one, and all below it."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from asrnorm.data.image import ENDINGS
from asrnorm.errors import InputError


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
