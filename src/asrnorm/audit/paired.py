"""Intervals of differences between accuracies on the same images, which are known better than either accuracy.

McNemar (1947), "Note on the sampling error of the difference between correlated proportions or percentages".
"""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

_Z = 1.959964  # of a 95 % interval


def pack(right_n: Tensor) -> str:
    """Return which images are right as hexadecimal digits, a bit per image, the first image first."""
    return np.packbits(right_n.cpu().numpy().astype(bool)).tobytes().hex()


def paired_interval(first: Sequence[str], second: Sequence[str], num_images: int) -> tuple[float, float]:
    r"""Return the 95 % interval of the mean accuracy in some cases minus that in others, all on the same images.

    It is the normal approximation of the mean difference of an image, widened by a continuity correction. For one case
    each, with $b$ of $n$ images right only in the first and $c$ only in the second, it is
    $(b - c \pm (z \sqrt{b + c - (b - c)^2 / n} + 1)) / n$. All sums are of integers. A case is the right images as
    `pack` writes them; if one is not known image by image, the interval has no bounds.

    Example:
        >>> import torch
        >>> one, other = (pack(torch.arange(100) < count) for count in (28, 26))
        >>> low, high = paired_interval([one], [other], 100)
        >>> round(low, 3), round(high, 3)
        (-0.017, 0.057)
    """
    if not first or not second or not all((*first, *second)):
        return -math.inf, math.inf
    # Whole numbers: each side times the number of cases on the other.
    difference_n = len(second) * _count(first, num_images) - len(first) * _count(second, num_images)
    total, squares = int(difference_n.sum()), int((difference_n**2).sum())
    deviation = math.sqrt(squares - total**2 / num_images)
    half = _Z * deviation + math.gcd(len(first), len(second))  # the smallest step that a total can make
    unit = num_images * len(first) * len(second)
    return (total - half) / unit, (total + half) / unit


def is_higher(first: Sequence[str], second: Sequence[str], num_images: int) -> bool:
    """Return whether the mean accuracy in `first` is above that in `second` by more than the interval."""
    return paired_interval(first, second, num_images)[0] > 0


def _count(cases: Sequence[str], num_images: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """In how many cases each image is right."""
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(case), np.uint8), count=num_images) for case in cases]
    return np.sum(bits, axis=0, dtype=np.int64)
