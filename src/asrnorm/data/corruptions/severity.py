"""The published severities of all corruptions, the limits of their numbers, and the published checksums.

`cifar`: Hendrycks and Dietterich, CIFAR-10-C, for 32x32 images. `imagenet`: the same authors' ImageNet-C, for 224x224.
Lengths are in pixels at every image size; those of `elastic_transform` are fractions of the shorter side, since the
published ones are multiples of it.
"""

import math
import operator
from collections.abc import Mapping
from numbers import Real
from typing import Any

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown

SEVERITIES = (1, 2, 3, 4, 5)
Table = Mapping[str, tuple[dict[str, Any], ...]]

_SNOW = ("mean", "sd", "zoom", "threshold", "radius", "sigma", "keep")
_SPATTER = ("mean", "sd", "sigma", "threshold", "strength", "mud")
_ELASTIC = ("alpha", "sigma", "affine")
_LARGEST_SMALL = 64  # images with no side longer than this take the CIFAR severities
_IMAGENET_STRETCH = 244 / 224  # the published ImageNet script multiplies by 244 on images of 224 pixels


def _rows(names: tuple[str, ...], *rows: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def _row(name: str, *values: float) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


_CIFAR: Table = {
    "gaussian_noise": _row("sd", 0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": _row("photons", 500, 250, 100, 75, 50),
    "impulse_noise": _row("amount", 0.01, 0.02, 0.03, 0.05, 0.07),
    "speckle_noise": _row("sd", 0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": _row("sigma", 0.4, 0.6, 0.7, 0.8, 1.0),
    "defocus_blur": _rows(("radius", "alias"), (0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": _rows(
        ("sigma", "reach", "rounds"), (0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)
    ),
    "motion_blur": _rows(("radius", "sigma"), (6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": _rows(("end", "step"), (1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": _rows(
        _SNOW,
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": _rows(
        ("keep", "add", "scale"), (1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)
    ),
    "fog": _rows(("density", "decay"), (0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": _row("add", 0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": _row("factor", 0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": _rows(
        _ELASTIC, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
    ),
    "pixelate": _row("scale", 0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": _row("quality", 80, 65, 58, 50, 40),
    "spatter": _rows(
        _SPATTER,
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    "saturate": _rows(("factor", "add"), (0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

_IMAGENET: Table = {
    "gaussian_noise": _row("sd", 0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": _row("photons", 60, 25, 12, 5, 3),
    "impulse_noise": _row("amount", 0.03, 0.06, 0.09, 0.17, 0.27),
    "speckle_noise": _row("sd", 0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": _row("sigma", 1, 2, 3, 4, 6),
    "defocus_blur": _rows(("radius", "alias"), (3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": _rows(("sigma", "reach", "rounds"), (0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": _rows(("radius", "sigma"), (10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": _rows(("end", "step"), (1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": _rows(
        _SNOW,
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": _rows(
        ("keep", "add", "scale"), (1, 0.4, 1.0), (0.8, 0.6, 1.0), (0.7, 0.7, 1.0), (0.65, 0.7, 1.0), (0.6, 0.75, 1.0)
    ),
    "fog": _rows(("density", "decay"), (1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": _row("add", 0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": _row("factor", 0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": tuple(
        {name: value * _IMAGENET_STRETCH for name, value in row.items()}
        for row in _rows(
            _ELASTIC, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
        )
    ),
    "pixelate": _row("scale", 0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": _row("quality", 25, 18, 15, 10, 7),
    "spatter": _rows(
        _SPATTER,
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    "saturate": _rows(("factor", "add"), (0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}

PRESETS: Mapping[str, Table] = {"cifar": _CIFAR, "imagenet": _IMAGENET}


def choose_preset(height: int, width: int) -> str:
    """Return the preset for images of this size: `cifar` up to 64 pixels a side, `imagenet` above."""
    return "cifar" if max(height, width) <= _LARGEST_SMALL else "imagenet"


def severity_options(name: str, severity: int, preset: str) -> dict[str, Any]:
    """Return the numbers of a corruption at a severity of a preset.

    Example:
        >>> severity_options("fog", 3, "cifar")
        {'density': 0.75, 'decay': 2.5}
    """
    if preset not in PRESETS:
        raise UnknownNameError(describe_unknown("preset", preset, PRESETS))
    try:
        number = 0 if isinstance(severity, bool) else operator.index(severity)
    except TypeError:
        number = 0
    if number not in SEVERITIES:
        raise InputError(f"severity {severity!r} does not exist; it is 1, 2, 3, 4 or 5")
    return dict(PRESETS[preset][name][number - 1])


_WIDE, _ANY = (-100.0, 100.0), (-math.inf, math.inf)
# Outside these a corruption would divide by zero, exhaust the memory, or not end.
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
# Narrower limits of single corruptions: half a Gaussian needs a width, and a scale above 1 would not shrink.
_NARROWER: Mapping[tuple[str, str], tuple[float, float]] = {
    ("elastic_transform", "sigma"): (0, 10),
    ("motion_blur", "sigma"): (0.001, 1000),
    ("pixelate", "scale"): (0, 1),
    ("snow", "sigma"): (0.001, 1000),
}

# Fog is drawn on a square whose side is a power of two, frost is cut from photographs enlarged to the image: at this
# side either takes about a gigabyte, and four times that at the next power.
_LONGEST = 8192


def check_limits(name: str, options: Mapping[str, object]) -> None:
    """Raise `InputError` if an option of a corruption is outside its limits or NaN."""
    for option, value in options.items():
        least, most = _NARROWER.get((name, option)) or _LIMITS.get(option, _ANY)
        if isinstance(value, Real) and not least <= float(value) <= most:  # also true of NaN
            raise InputError(
                f"option {option!r} of corruption {name!r} must be from {least:g} to {most:g}, not {value}"
            )


def check_side(name: str, height: int, width: int) -> None:
    """Raise `InputError` if images are too long for a corruption whose memory grows with the square of a side."""
    if name in ("fog", "frost") and max(height, width) > _LONGEST:
        raise InputError(
            f"{name} takes images of at most {_LONGEST:,} pixels a side, not {height:,} x {width:,}; resize or cut them"
        )


# MD5 of the whole .npy files of CIFAR-10-C.tar (https://zenodo.org/records/2535967).
PUBLISHED_MD5 = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "labels": "c439b113295ed5254878798ffe28fd54",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}
# The published script draws these without a seed, so that only their distribution can be reproduced.
RANDOM = frozenset(
    (
        *("elastic_transform", "fog", "frost", "gaussian_noise", "glass_blur", "impulse_noise", "motion_blur"),
        *("shot_noise", "snow", "spatter", "speckle_noise"),
    )
)
