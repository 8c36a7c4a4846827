"""Random colors that can be told apart."""

import numpy as np
from numpy.typing import NDArray

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, what Pillow's "L" uses
_DRAWS = 64


def luma(colors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the brightness, 0 to 255, of RGB colors along the last axis.

    Example:
        >>> float(luma(np.array([255.0, 255.0, 255.0])).round(6))
        255.0
    """
    return colors @ _LUMA


def sample_color_pairs(
    count: int, contrast: float, light_share: float, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw stroke and ground colors, uniform over all pairs that are far enough apart in brightness.

    Args:
        count: how many pairs.
        contrast: least difference in brightness, 0 to about 150.
        light_share: how often the stroke is the lighter one, 0 to 1.
        generator: the only source of randomness.

    Returns:
        Two arrays `(count, 3)` of values from 0 to 255: strokes, grounds.

    Example:
        >>> strokes, grounds = sample_color_pairs(5, 80, 0.0, np.random.default_rng(0))
        >>> bool((luma(grounds) - luma(strokes) >= 80).all())
        True
    """
    draws = generator.uniform(0, 255, (count, _DRAWS, 2, 3))
    difference = luma(draws[:, :, 0]) - luma(draws[:, :, 1])
    # The first draw that suffices; where none of the 64 does, the best one.
    suffices = np.abs(difference) >= contrast
    best = np.where(suffices.any(1), suffices.argmax(1), np.abs(difference).argmax(1))
    pairs, first_is_lighter = draws[np.arange(count), best], difference[np.arange(count), best] > 0
    swap = first_is_lighter != (generator.random(count) < light_share)
    pairs[swap] = pairs[swap][:, ::-1]
    return pairs[:, 0], pairs[:, 1]
