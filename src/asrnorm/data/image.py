"""Decoding of image files to uint8 RGB arrays, with Pillow.

Transparent images are put on white, 16-bit values keep their high byte (as Pillow does with 16-bit color), EXIF
rotation is applied, and a file that declares too many pixels is rejected before they are allocated.
"""

import errno
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from asrnorm.core.errors import InputError, first_line
from asrnorm.core.settings import count_cores

MAX_PIXELS = 89_478_485  # 256 MiB in RGB; Pillow's own limit
EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .webp .bmp .tif .tiff .gif .ppm .pgm .pnm .pbm .jp2 .j2k .avif".split()  # noqa: SIM905
)
# Raster formats only: Pillow passes EPS files to Ghostscript, and formats without a signature accept anything.
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "JPEG2000", "AVIF")
_TRANSPARENT = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_BLOCK = 256  # images per block of read_images: enough to keep the threads busy, little memory


def read_image(path: str | Path, *, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Return the image in a file as uint8 `(h, w, 3)`, resized bilinearly to a height and width if `size` is given.

    The content decides the format, not the extension. A file that cannot be read raises `InputError`.
    """
    with _quiet():
        return _decode(Path(path), size)


def read_images(
    paths: Sequence[Path], *, size: tuple[int, int], broken: list[int] | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Yield the images of many files in order, as uint8 `(k, h, w, 3)` blocks, decoded by several threads.

    Of several files that cannot be read, the `InputError` names the first in order. If a list `broken` is given, the
    rows of files that are damaged or absent are added to it instead, and their images are black.
    """

    def decode(row: int) -> NDArray[np.uint8]:
        try:
            return _decode(paths[row], size)
        except InputError as error:
            if broken is None or _is_of_system(error.__context__):
                raise
            broken.append(row)
            return np.zeros((*size, 3), np.uint8)

    with _quiet(), ThreadPoolExecutor(count_cores()) as pool:
        for start in range(0, len(paths), _BLOCK):
            yield np.stack(list(pool.map(decode, range(start, min(start + _BLOCK, len(paths))))))


def _is_of_system(error: BaseException | None) -> bool:
    """Return whether a file may be good although it was not read: no permission, a failing disk, too little memory."""
    is_known = isinstance(error, OSError) and error.errno in (None, errno.ENOENT, errno.EISDIR)  # Pillow sets no errno
    return isinstance(error, OSError | MemoryError) and not is_known


def resize_images(images: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return images `(n, h, w)` or `(n, h, w, 3)` resized on uint8, gray ones replicated to three channels.

    The Digits protocols use Lanczos on uint8; resizing floats gives other pixels, since the uint8 filter rounds and
    clips its overshoot.
    """
    out = np.empty((len(images), *size, 3), np.uint8)
    for row, image in enumerate(images):
        picture = Image.fromarray(np.ascontiguousarray(image))
        if (picture.height, picture.width) != size:
            picture = picture.resize((size[1], size[0]), Image.Resampling.LANCZOS)
        pixels = np.asarray(picture)
        out[row] = pixels if pixels.ndim == 3 else pixels[:, :, None]
    return out


def _decode(path: Path, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    try:
        # Opened here: given a path, Pillow maps an uncompressed, rotated TIFF into memory with its sides exchanged.
        with path.open("rb") as file, Image.open(file, formats=_known_formats()) as image:
            rgb = _to_rgb(image, path)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not an image file") from None
    except UnidentifiedImageError:
        raise InputError(f"{path}: cannot be read as an image: unknown format, or damaged at its start") from None
    except Exception as error:  # decoders raise nearly anything on a broken file, SyntaxError and struct.error included
        raise InputError(f"{path}: cannot be read as an image: {_reason(error, path)}") from None
    if size is not None and (rgb.height, rgb.width) != size:
        rgb = rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(rgb, dtype=np.uint8)


def _to_rgb(image: Image.Image, path: Path) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise InputError(f"{path}: {image.width}x{image.height} pixels, more than {MAX_PIXELS:,}; make it smaller")
    image.load()
    wide = image.mode == "I" and image.format == "TIFF"  # 32 bits; a PNG of 16 may come in this mode too
    with suppress(Exception):  # a broken EXIF block does not harm the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        pixels = _to_eight_bits(values, path, wide=wide)
        if isinstance(clear := image.info.get("transparency"), int):  # the gray value that means transparent
            pixels = np.where(values == clear, np.uint8(255), pixels)
        return Image.fromarray(pixels).convert("RGB")
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _to_eight_bits(values: NDArray[np.generic], path: Path, *, wide: bool) -> NDArray[np.uint8]:
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return np.rint(values.astype(np.float32) * 255).astype(np.uint8)
    if values.dtype.kind in "iu" and low >= 0 and high <= 65535 and not wide:
        return (values.astype(np.uint32) >> 8).astype(np.uint8)
    raise InputError(f"{path}: pixel values from {low:g} to {high:g} cannot be interpreted; convert it to 8 or 16 bits")


@cache
def _known_formats() -> tuple[str, ...]:
    Image.init()  # a Pillow built without WebP or AVIF would fail on the bare name
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@contextmanager
def _quiet() -> Iterator[None]:
    # Around whole batches, never in a thread: the filters of `warnings` are global to the process.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about odd metadata
        yield


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, OSError) and error.strerror:  # the system's message, without the path
        return error.strerror
    return first_line(error).replace(repr(str(path)), "the file").replace(str(path), "the file")
