"""The registry of corruptions, their random streams, and `corrupt`, which applies one to images.

A corruption takes `n` images of one size as uint8 `nhwc` in RGB, one random stream per image, and keyword-only numbers
that a severity fixes; it returns uint8 of the same shape. No value of one image may depend on another image, so that
any chunking gives the same result.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.config import as_whole_number
from asrnorm.core.errors import InputError, InputTypeError, missing_extra
from asrnorm.core.registry import Registry
from asrnorm.data.corruptions.severity import check_limits, check_side, choose_preset, severity_options

if TYPE_CHECKING:
    from torch import Tensor

Pixels: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[Any]  # float64 or float32: each corruption keeps the precision of the published script
ImagesT = TypeVar("ImagesT", Pixels, "Tensor")

CORRUPTIONS: Registry[Callable[..., Pixels]] = Registry("corruption")

# Images are processed in chunks of this many values: their float64 copies stay in a core's cache, and are small enough
# that the allocator reuses the memory.
_CHUNK_VALUES = 2**16
_WORD = 2**64


def list_corruptions() -> tuple[str, ...]:
    """Return the names of all corruptions."""
    return CORRUPTIONS.names()


def corrupt(
    images: ImagesT,
    name: str,
    *,
    severity: int = 3,
    seed: int = 0,
    preset: str | None = None,
    indices: "Sequence[int] | Tensor | None" = None,
    **options: Any,
) -> ImagesT:
    """Return the images with one of the 19 corruptions of CIFAR-10-C and ImageNet-C.

    The result of an image depends only on its pixels, the corruption, the severity, the seed and its index: a part of a
    data set, given with its `indices`, gets the same corruption as within the whole.

    A NumPy array is computed by the reference. A tensor is computed on its device, in whole batches, and the result has
    its dtype and memory format: within one gray level of the reference where nothing is random, elsewhere in
    distribution, with random numbers of its own. `jpeg_compression` and `spatter` are computed by the reference in both
    cases. No gradient flows through.

    Args:
        images: RGB images of one size, any size: an array of uint8 `(n, h, w, 3)`, or a tensor `(n, 3, h, w)` of uint8,
            or of floats in [0, 1].
        name: one of `list_corruptions()`.
        severity: 1 (mild) to 5.
        seed: of the random corruptions.
        preset: whose severities: `cifar` (CIFAR-10-C) or `imagenet` (ImageNet-C); by default the former for images up
            to 64 pixels a side.
        indices: an integer that identifies each image; 0, 1, 2, ... by default.
        **options: numbers to use instead of the severity's, such as `sd=0.2` for `gaussian_noise`; and `source`, a
            folder or wheel with the photographs, for `frost`.

    Raises:
        UnknownNameError: there is no such corruption, preset or option.
        InputError: the severity is not 1 to 5, an option is out of range, the images have another shape, are too long
            for `fog` or `frost`, or are floats outside [0, 1] (which a GPU clips, without a check), or there are not as
            many indices as images.
        InputTypeError: the images have another type, or a seed or index is not an integer.

    Example:
        >>> gray = np.full((2, 32, 32, 3), 100, np.uint8)
        >>> corrupt(gray, "brightness", severity=1)[0, 0, 0]
        array([112, 112, 112], dtype=uint8)
    """
    check_call(name, options)
    # An argument can only be a tensor if torch is imported; the workers that corrupt arrays start without it.
    if (torch := sys.modules.get("torch")) and isinstance(images, torch.Tensor):
        from asrnorm.data.corruptions.tensors import corrupt_tensors

        return corrupt_tensors(images, name, options, severity=severity, seed=seed, preset=preset, indices=indices)
    pixels = _check_images(images)
    n, height, width, channels = pixels.shape
    check_side(name, height, width)
    seed = as_whole_number(seed, "seed")
    settings = severity_options(name, severity, preset or choose_preset(height, width)) | options
    indices = range(n) if indices is None else [as_whole_number(index, "an index") for index in indices]
    if len(indices) != n:
        raise InputError(f"{n} images but {len(indices)} indices; give one index for each image")
    corrupted: Any = np.empty_like(pixels)
    chunk = max(1, _CHUNK_VALUES // (height * width * channels))
    for start in range(0, n, chunk):
        part = slice(start, start + chunk)
        streams = Streams(seed, name, severity, indices[part])
        corrupted[part] = CORRUPTIONS[name](pixels[part], streams, **settings)
    return corrupted


def check_call(name: str, options: Mapping[str, Any]) -> None:
    """Raise unless there is this corruption and it has these options."""
    CORRUPTIONS.check(name, options)
    check_limits(name, options)


def _check_images(images: Any) -> Pixels:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise InputTypeError(f"images must be a tensor or a numpy array of uint8, not {kind}; scale to 0..255, convert")
    if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        raise InputError(f"images must have shape (n, height, width, 3), not {images.shape}; one image: image[None]")
    return np.ascontiguousarray(images)


def stream_word(seed: int, name: str, severity: int) -> int:
    """Return 64 bits, signed, from the part of an image's key that all images share."""
    digest = hashlib.blake2b(f"{seed}/{name}/{severity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class Streams:
    """One counter-based random generator (Philox) for each of `n` images; every draw has the images first.

    The key of an image consists of the seed, the corruption, the severity and the image's index, so that the result is
    the same on every run, in any order, for any chunk and on any number of workers.
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Sequence[int]) -> None:
        word = stream_word(seed, name, severity) % _WORD
        self._generators = [
            np.random.Generator(np.random.Philox(key=np.array([word, index % _WORD], np.uint64))) for index in indices
        ]

    def __len__(self) -> int:
        return len(self._generators)

    def __iter__(self) -> Iterator[np.random.Generator]:
        return iter(self._generators)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Draw from N(0, 1): `(n, *shape)`."""
        return np.stack([generator.standard_normal(shape) for generator in self])

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        """Draw from U(low, high): `(n, *shape)`."""
        drawn = np.stack([generator.random(shape) for generator in self])
        return drawn * (high - low) + low

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """Draw integers uniformly from low to high - 1: `(n, *shape)`."""
        return np.stack([generator.integers(low, high, size=shape) for generator in self])

    def poisson(self, rate_n: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw Poisson counts with the given rates, images first."""
        return np.stack([generator.poisson(rate) for generator, rate in zip(self, rate_n, strict=True)])


def to_unit(images_nhwc: Pixels, dtype: type[np.floating[Any]] = np.float64) -> Floats:
    """Return images scaled to 0..1; the division is in float64 for every dtype of the result."""
    return (images_nhwc / 255.0).astype(dtype, copy=False)


def to_pixels(x: Floats) -> Pixels:
    """Return values clipped to 0..1, times 255, truncated as in the published arrays."""
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def import_opencv(name: str) -> Any:
    """Return the module `cv2`, which four corruptions need; raise `MissingDependencyError` if it is not installed."""
    try:
        return import_module("cv2")
    except ImportError:
        raise missing_extra(f"corruption {name!r}", "OpenCV", "data") from None
