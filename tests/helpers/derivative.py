"""Directional derivatives of a NumPy function, to nearly full precision and without autograd."""

from collections.abc import Callable, Mapping

import numpy as np

Point = Mapping[str, np.ndarray]

# Nothing is subtracted in a complex step, so it may be as small as we like.
COMPLEX_STEP = 1e-30
# Truncation error about step**2, rounding error about 1e-16 / step.
REAL_STEP = 1e-5


def moved(point: Point, direction: Point, step: complex) -> dict[str, np.ndarray]:
    """The point, gone `step` times `direction` in the coordinates that the direction names."""
    return {key: value + step * direction[key] if key in direction else value for key, value in point.items()}


def first(function: Callable[[Point], complex], point: Point, direction: Point) -> float:
    """Derivative of a scalar function along `direction`, by one complex step.

    >>> round(first(lambda p: (p["x"] ** 3).sum(), {"x": np.array([2.0])}, {"x": np.array([1.0])}), 9)
    12.0
    """
    return float(np.imag(function(moved(point, direction, 1j * COMPLEX_STEP))) / COMPLEX_STEP)


def second(function: Callable[[Point], complex], point: Point, along: Point, then: Point) -> float:
    """Derivative of `first` along `along`, again along `then`, by a central difference.

    >>> one = {"x": np.array([1.0])}
    >>> round(second(lambda p: (p["x"] ** 3).sum(), {"x": np.array([2.0])}, one, one), 6)
    12.0
    """
    ahead, behind = (first(function, moved(point, then, step), along) for step in (REAL_STEP, -REAL_STEP))
    return (ahead - behind) / (2 * REAL_STEP)
