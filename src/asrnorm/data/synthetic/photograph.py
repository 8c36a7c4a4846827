"""Patches of the sample photographs inside the wheels of scikit-image and scikit-learn; nothing is downloaded."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.data.synthetic.dependency import package_file

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
