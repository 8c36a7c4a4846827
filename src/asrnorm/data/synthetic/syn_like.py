"""A stand-in for SYN, the synthetic digits of Ganin and Lempitsky, whose file can no longer be had everywhere."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.synthetic.render import RenderStyle, render_digits

# What the paper names: one-, two- and three-digit numbers, position, orientation, colors of background and stroke,
# amount of blur. It gives no ranges: these make a plain network lose about as much as is published for SYN.
SYN_STYLE = RenderStyle(neighbor_chance=0.5, rotation=15.0)


def build_syn_like(count: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Render digits as SYN describes them: it is not SYN, and results on it must not be named so.

    Args:
        count: how many images; the classes are as equal as it allows (SYN's test set has 9,553).
        seed: chooses everything.

    Returns:
        Images of shape `(count, 32, 32, 3)` and labels, in random order.

    Raises:
        MissingDependencyError: matplotlib, whose fonts are used, is not installed.
    """
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(count) % 10)
    return render_digits(labels, SYN_STYLE, generator), labels
