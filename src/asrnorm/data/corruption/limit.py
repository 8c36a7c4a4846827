"""Between which bounds a corruption makes sense: beyond them it would divide by zero, fill the memory, or not end."""

from collections.abc import Mapping
from numbers import Real

from asrnorm.errors import InputError

_WIDE = (-100.0, 100.0)
_LIMITS: Mapping[str, tuple[float, float]] = {
    "add": _WIDE,
    "affine": (0, 10),
    "alias": (0, 100),
    "alpha": (0, 10),
    "amount": (0, 1),
    "decay": (0.1, 100),
    "density": (0.001, 100),
    "end": (1, 10),
    "factor": _WIDE,
    "keep": (0, 100),
    "mean": _WIDE,
    "photons": (0.001, 1e9),
    "quality": (1, 100),
    "radius": (0, 1000),
    "reach": (1, 1000),
    "rounds": (0, 1000),
    "scale": (0, 10),
    "sd": (0, 100),
    "sigma": (0, 1000),
    "step": (0.001, 10),
    "strength": (0, 100),
    "threshold": _WIDE,
    "zoom": (1, 100),
}
# Of single corruptions: half a Gaussian needs a width, and shrinking by more than 1 is none.
_NARROWER: Mapping[tuple[str, str], tuple[float, float]] = {
    ("elastic_transform", "sigma"): (0, 10),
    ("motion_blur", "sigma"): (0.001, 1000),
    ("pixelate", "scale"): (0, 1),
    ("snow", "sigma"): (0.001, 1000),
}

# Fog is drawn on a square with a power of two a side, frost cut out of photographs enlarged to the image: at this side
# either takes about a gigabyte, and four times that at the next.
_LONGEST = 8192
_OF_LONGEST_SIDE = ("fog", "frost")


def check_limits(name: str, options: Mapping[str, object]) -> None:
    """Refuse numbers with which a corruption makes no images.

    Args:
        name: of a corruption.
        options: of the right types.

    Raises:
        InputError: one that lies outside, infinite or not a number.

    Example:
        >>> check_limits("shot_noise", {"photons": -1})
        Traceback (most recent call last):
        asrnorm.errors.InputError: option 'photons' of corruption 'shot_noise' must be from 0.001 to 1e+09, not -1
    """
    for option, value in options.items():
        limits = _NARROWER.get((name, option)) or _LIMITS.get(option)
        if limits is None or not isinstance(value, Real):
            continue
        least, most = limits
        if not least <= float(value) <= most:  # false of what is not a number
            raise InputError(
                f"option {option!r} of corruption {name!r} must be from {least:g} to {most:g}, not {value}"
            )


def check_side(name: str, height: int, width: int) -> None:
    """Refuse images so long that a corruption which grows with the square of their longest side fills the memory.

    Raises:
        InputError: with the longest side there may be.

    Example:
        >>> check_side("fog", 32, 10_000)
        Traceback (most recent call last):
        asrnorm.errors.InputError: fog takes images of at most 8,192 pixels a side, not 32 x 10,000; resize or cut them
    """
    if name in _OF_LONGEST_SIDE and max(height, width) > _LONGEST:
        raise InputError(
            f"{name} takes images of at most {_LONGEST:,} pixels a side, not {height:,} x {width:,}; resize or cut them"
        )
