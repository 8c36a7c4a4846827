"""What a corruption is, and the two conversions that all of them share.

A corruption takes `n` images of one size as uint8 `nhwc` in RGB, one random stream an image, and keyword-only numbers
that a severity fixes; it returns uint8 of the same shape. No value of one image may depend on another image, so that
any chunking gives the same result.

Randomness that depends on nothing but the seed, the corruption, the severity and the image's index.

One counter-based generator (Philox) an image: its key is a digest of the first three and the index, so that the result
is the same on every run, in any order, for any chunk and on any number of workers.

OpenCV, which four of the corruptions need.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import MissingDependencyError
from asrnorm.core.registry import Registry

Pixels: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[Any]  # float64 or float32: each corruption keeps the precision of the published script

CORRUPTIONS: Registry[Callable[..., Pixels]] = Registry("corruption")


def to_unit(images_nhwc: Pixels, dtype: type[np.floating[Any]] = np.float64) -> Floats:
    """Return images scaled to 0..1; divided in float64 first, whatever the type asked for.

    Example:
        >>> to_unit(np.array([0, 51, 255], np.uint8))
        array([0. , 0.2, 1. ])
    """
    return (images_nhwc / 255.0).astype(dtype, copy=False)


def to_pixels(x: Floats) -> Pixels:
    """Return 0..1 clipped, times 255, truncated: the published arrays are truncated, not rounded.

    Example:
        >>> to_pixels(np.array([-0.5, 0.999, 2.0]))
        array([  0, 254, 255], dtype=uint8)
    """
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


_WORD = 2**64


class Streams:
    """One random generator for each of `n` images; every draw has the images first.

    Args:
        seed: any integer.
        name: the corruption.
        severity: its severity.
        indices: what tells the images apart, an integer each; position in the data set, as a rule.

    Example:
        >>> whole = Streams(0, "fog", 3, range(4)).uniform(2)
        >>> part = Streams(0, "fog", 3, [3]).uniform(2)
        >>> whole.shape, bool((whole[3] == part[0]).all())
        ((4, 2), True)
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Sequence[int]) -> None:
        digest = hashlib.blake2b(f"{seed}/{name}/{severity}".encode(), digest_size=8).digest()
        word = int.from_bytes(digest, "little")
        self._generators = [
            np.random.Generator(np.random.Philox(key=np.array([word, index % _WORD], np.uint64))) for index in indices
        ]

    def __len__(self) -> int:
        return len(self._generators)

    def __iter__(self) -> Iterator[np.random.Generator]:
        return iter(self._generators)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Draw from N(0, 1): `(n, *shape)`."""
        drawn = np.empty((len(self), *shape))
        for row, generator in zip(drawn, self, strict=True):
            generator.standard_normal(out=row)
        return drawn

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        """Draw from U(low, high): `(n, *shape)`."""
        drawn = np.empty((len(self), *shape))
        for row, generator in zip(drawn.reshape(len(self), -1), self, strict=True):
            generator.random(out=row)
        drawn *= high - low
        drawn += low
        return drawn

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """Draw integers from low to high - 1, all alike: `(n, *shape)`."""
        drawn = np.empty((len(self), *shape), np.int64)
        for position, generator in enumerate(self):
            drawn[position] = generator.integers(low, high, size=shape)
        return drawn

    def poisson(self, rate_n: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw Poisson counts with the given rates, images first."""
        drawn = np.empty(rate_n.shape, np.int64)
        for position, generator in enumerate(self):
            drawn[position] = generator.poisson(rate_n[position])
        return drawn


def import_opencv(name: str) -> Any:
    """Return the module `cv2`.

    Raises:
        MissingDependencyError: it is not installed; the line says what to install.
    """
    try:
        return import_module("cv2")
    except ImportError:
        raise MissingDependencyError(f"corruption {name!r} needs OpenCV: pip install opencv-python-headless") from None
