"""The severities and limits in `severities.yaml`, and the published checksums."""

import math
import operator
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown

SEVERITIES = (1, 2, 3, 4, 5)
Table = Mapping[str, tuple[dict[str, Any], ...]]
_LARGEST_SMALL = 64  # images with no side longer than this take the CIFAR severities
_IMAGENET_STRETCH = 244 / 224  # the published ImageNet script multiplies by 244 on images of 224 pixels


def _load() -> tuple[dict[str, Table], dict[str, tuple[float, float]]]:
    import yaml

    presets = yaml.safe_load(Path(__file__).with_name("severities.yaml").read_text("utf-8"))
    limits = {option: tuple(bounds) for option, bounds in presets.pop("limits").items()}
    elastic = presets["imagenet"]["elastic_transform"]
    elastic.update({option: [value * _IMAGENET_STRETCH for value in values] for option, values in elastic.items()})
    return {
        preset: {name: _to_rows(columns) for name, columns in table.items()} for preset, table in presets.items()
    }, limits


def _to_rows(columns: dict[str, list[Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


PRESETS, LIMITS = _load()


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


# Fog is drawn on a square whose side is a power of two, frost is cut from photographs enlarged to the image: at this
# side either takes about a gigabyte, and four times that at the next power.
_LONGEST = 8192


def check_limits(name: str, options: Mapping[str, object]) -> None:
    """Raise `InputError` if an option of a corruption is outside its limits or NaN."""
    for option, value in options.items():
        least, most = LIMITS.get(f"{name}.{option}") or LIMITS.get(option, (-math.inf, math.inf))
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
