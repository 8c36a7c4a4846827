"""Handwritten digits in colored ink: dark on light as often as light on dark."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.synthetic.color import sample_color_pairs


def recolor_strokes(
    digits_nhw: NDArray[np.uint8], generator: np.random.Generator, *, contrast: float, light_share: float
) -> NDArray[np.uint8]:
    """Repaint white-on-black digits with a colored stroke on a colored ground.

    Args:
        digits_nhw: grey digits.
        generator: the only source of randomness.
        contrast: least difference in brightness between stroke and ground, of 255.
        light_share: how often the stroke stays the lighter one; the others are inverted.

    Returns:
        Images of shape `(n, h, w, 3)`.

    Example:
        >>> digit = np.zeros((1, 2, 2), np.uint8); digit[0, 0, 0] = 255
        >>> painted = recolor_strokes(digit, np.random.default_rng(0), contrast=90, light_share=0)
        >>> bool(painted[0, 0, 0].sum() < painted[0, 1, 1].sum())
        True
    """
    strokes, grounds = sample_color_pairs(len(digits_nhw), contrast, light_share, generator)
    coverage = digits_nhw[..., None] / 255
    painted = grounds[:, None, None] + coverage * (strokes - grounds)[:, None, None]
    return np.rint(painted).astype(np.uint8)
