"""Contact sheets of the images of each domain, one PNG per domain and an overview."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from asrnorm.core.errors import InputError, UnknownNameError, count_of, describe_unknown
from asrnorm.core.files import replacing
from asrnorm.data.image_set import FileSet, ImageSet
from asrnorm.data.suites.base import Suite

OVERVIEW = "overview"

_SMALL_TILE, _LARGE_TILE = 96, 128  # for images up to 96 pixels, enlarged by integer factors, and for larger ones
_GAP, _MARGIN = 4, 16
_TITLE, _LABEL, _SMALLEST = 20, 16, 11  # font sizes
_MAX_LABEL_WIDTH = 240
_MAX_CLASSES = 40
_PAPER, _INK, _BLANK, _FRAME = "#ffffff", "#1a1a1a", "#ececec", "#c8c8c8"

# A `FileSet`, or anything that returns an image `(h, w, 3)` or `(h, w)` for a row number: an array, a memory map.
Images = Any
Tile = Image.Image | None
Domains = Mapping[str, tuple[Images, ArrayLike]]
_font = ImageFont.load_default


def contact_sheet(
    domains: Domains, classes: Sequence[str], path: str | os.PathLike[str], *, per_class: int = 8
) -> list[Path]:
    """Write `overview.png`, a row per domain and a column per class, and one sheet per domain, a row per class.

    Images are evenly spaced within each class, so that the choice is always the same, also across domains with the same
    pictures in the same order. Pixels of small images stay sharp squares. Domains are read one by one. The files
    written are returned, the overview first.

    Args:
        domains: name to images (uint8, indexed by row) and labels.
        classes: names of the classes, which labels index; of more than 40, 40 are shown.
        path: folder to write to; created if missing.
        per_class: number of images of each class on the sheet of a domain.

    Raises:
        InputError: there is nothing to show, a label has no class, or two domains would share a file name.

    Example:
        >>> import tempfile
        >>> images, labels = np.zeros((4, 32, 32, 3), np.uint8), np.array([0, 1, 0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [file.name for file in contact_sheet({"fog/5": (images, labels)}, ["cat", "dog"], folder)]
        ['overview.png', 'fog-5.png']
    """
    if not domains or not classes or per_class < 1:
        raise InputError("a contact sheet needs at least one domain, one class and one image a class")
    folder = Path(path)
    files = _file_names(domains)
    shown = _spread(len(classes), _MAX_CLASSES)
    names = [classes[index] for index in shown]
    overview_rows, written = [], []
    folder.mkdir(parents=True, exist_ok=True)
    for domain, (images, labels) in domains.items():
        labels = _check_labels(domain, labels, len(classes))
        rows = [_choose(images, labels, index, per_class) for index in shown]
        overview_rows.append([row[len(row) // 2] if row else None for row in rows])
        title = f"{domain}: {count_of(len(labels), 'image')}, {_count_classes(len(names), len(classes))}"
        written.append(_save(_draw_grid(title, names, (), rows, per_class), folder / files[domain]))
    title = f"{count_of(len(domains), 'domain')}, {_count_classes(len(names), len(classes))}"
    overview = _draw_grid(title, list(domains), names, overview_rows, len(names))
    return [_save(overview, folder / f"{OVERVIEW}.png"), *written]


class SuiteDomains(Mapping[str, tuple[Images, NDArray[np.int64]]]):
    """The source and the targets of a suite as `contact_sheet` takes them, each decoded when it is read.

    By default it has all domains, but of those with levels (`fog/1` to `fog/5`) only the strongest.
    """

    def __init__(self, suite: Suite, chosen: Sequence[str] | None = None) -> None:
        self._suite = suite
        self._source = "+".join(suite.sources)
        known = tuple(dict.fromkeys((self._source, *suite.targets)))
        for name in chosen or ():
            if name not in known:
                raise UnknownNameError(describe_unknown("domain", name, known))
        self._names = tuple(dict.fromkeys(chosen)) if chosen else strongest_levels(known)

    def __getitem__(self, name: str) -> tuple[Images, NDArray[np.int64]]:
        # Of the source the test images: CIFAR-10-C's targets show the same pictures, so that a column is one picture.
        data = self._suite.source_test if name == self._source else self._suite.targets[name]
        return (data.images if isinstance(data, ImageSet) else data), data.labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def strongest_levels(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without the weaker levels: of `fog/1` to `fog/5` only the last."""
    strongest: dict[str, tuple[int, str]] = {}
    for name in names:
        stem, _, level = name.rpartition("/")
        key, rank = (stem, int(level)) if stem and level.isdecimal() else (name, 0)
        strongest[key] = max(strongest.get(key, (rank, name)), (rank, name))
    return tuple(name for _, name in strongest.values())


def _draw_grid(
    title: str, row_labels: Sequence[str], column_labels: Sequence[str], rows: Sequence[Sequence[Tile]], columns: int
) -> Image.Image:
    sides = [max(image.size) for row in rows for image in row if image is not None]
    tile = _SMALL_TILE if max(sides, default=0) <= _SMALL_TILE else _LARGE_TILE
    step = tile + _GAP
    label_width = min(_MAX_LABEL_WIDTH, max(int(_font(_LABEL).getlength(label)) for label in row_labels) + 1)
    left = _MARGIN + label_width + 3 * _GAP
    top = _MARGIN + _TITLE + 3 * _GAP + (_LABEL + 2 * _GAP if column_labels else 0)
    right = max(left + columns * step - _GAP, _MARGIN + int(_font(_TITLE).getlength(title)) + 1)
    sheet = Image.new("RGB", (right + _MARGIN, top + len(rows) * step - _GAP + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), title, _INK, _font(_TITLE))
    for column, label in enumerate(column_labels):
        text, font = _fit(label, tile)
        draw.text((left + column * step + tile / 2, top - 2 * _GAP), text, _INK, font, anchor="ms")
    for row, (label, images) in enumerate(zip(row_labels, rows, strict=True)):
        text, font = _fit(label, label_width)
        y = top + row * step
        draw.text((left - 3 * _GAP, y + tile / 2), text, _INK, font, anchor="rm")
        for column in range(columns):
            _paste(sheet, images[column] if column < len(images) else None, left + column * step, y, tile)
    return sheet


def _paste(sheet: Image.Image, image: Tile, x: int, y: int, tile: int) -> None:
    if image is None:
        sheet.paste(_BLANK, (x, y, x + tile, y + tile))
        return
    side = max(image.size)
    if side <= tile:
        factor = tile // side
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    else:
        width, height = (max(1, round(length * tile / side)) for length in image.size)
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    x, y = x + (tile - image.width) // 2, y + (tile - image.height) // 2
    # A frame in the gap: sketches on white would run into the paper.
    ImageDraw.Draw(sheet).rectangle((x - 1, y - 1, x + image.width, y + image.height), outline=_FRAME)
    sheet.paste(image, (x, y))


def _choose(images: Images, labels: NDArray[np.integer], index: int, count: int) -> list[Tile]:
    rows = np.flatnonzero(labels == index)
    read = images.read if isinstance(images, FileSet) else images.__getitem__
    return [_to_image(read(int(rows[index]))) for index in _spread(len(rows), count)]


def _spread(length: int, count: int) -> list[int]:
    """Return at most `count` indices below `length`, evenly spaced, each in the middle of its interval."""
    count = min(length, count)
    return [(2 * index + 1) * length // (2 * count) for index in range(count)]


def _to_image(pixels: ArrayLike) -> Image.Image:
    array = np.asarray(pixels)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise InputError(f"images must be uint8 of shape (h, w, 3), not {array.dtype} {array.shape}")
    return Image.fromarray(array.squeeze(2) if array.ndim == 3 and array.shape[2] == 1 else array).convert("RGB")


def _check_labels(domain: str, labels: ArrayLike, num_classes: int) -> NDArray[np.integer]:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"domain {domain!r}: labels must be integers of shape (n,), not {array.dtype} {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() < num_classes):
        raise InputError(
            f"domain {domain!r}: labels run from {array.min()} to {array.max()}, but there are {num_classes} classes"
        )
    return array


def _file_names(domains: Domains) -> dict[str, str]:
    names: dict[str, str] = {}
    taken = {f"{OVERVIEW}.png": "the overview"}
    for domain in domains:
        name = (re.sub(r"[^\w.+-]+", "-", domain).strip("-.") or "domain") + ".png"
        # Compared in lower case, since some file systems ignore case.
        if name.lower() in taken:
            raise InputError(f"domain {domain!r} and {taken[name.lower()]} would both be written to {name}; rename one")
        taken[name.lower()] = repr(domain)
        names[domain] = name
    return names


def _count_classes(shown: int, total: int) -> str:
    return count_of(total, "class", "classes") if shown == total else f"{shown} of {total} classes"


def _fit(text: str, width: int) -> tuple[str, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
    """Return text and font that fit into `width`: first a smaller font, then fewer letters."""
    for size in range(_LABEL, _SMALLEST - 1, -1):
        font = _font(size)
        if font.getlength(text) <= width:
            return text, font
    while len(text) > 1 and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "...", font


def _save(sheet: Image.Image, path: Path) -> Path:
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG")
    return path
