"""The severities and limits in `severities.yaml`."""

import math
import operator
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.download.content import is_random

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
    for table in presets.values():
        for name, columns in table.items():
            rows = zip(*columns.values(), strict=True)
            table[name] = tuple(dict(zip(columns, row, strict=True)) for row in rows)
    return presets, limits


PRESETS, LIMITS = _load()


def choose_preset(height: int, width: int) -> str:
    """Return the preset for images of this size: `cifar` up to 64 pixels a side, `imagenet` above."""
    return "cifar" if max(height, width) <= _LARGEST_SMALL else "imagenet"


def severity_options(name: str, severity: int, preset: str) -> dict[str, Any]:
    """Return the numbers of a corruption at a severity of a preset."""
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
        low, high = LIMITS.get(f"{name}.{option}") or LIMITS.get(option, (-math.inf, math.inf))
        if isinstance(value, Real) and not low <= float(value) <= high:  # also true of NaN
            raise InputError(f"option {option!r} of corruption {name!r} must be from {low:g} to {high:g}, not {value}")


def check_side(name: str, height: int, width: int) -> None:
    """Raise `InputError` if images are too long for a corruption whose memory grows with the square of a side."""
    if name in ("fog", "frost") and max(height, width) > _LONGEST:
        raise InputError(
            f"{name} takes images of at most {_LONGEST:,} pixels a side, not {height:,} x {width:,}; resize or cut them"
        )


# The published script draws these without a seed, so that only their distribution can be reproduced.
RANDOM = frozenset(filter(is_random, PRESETS["cifar"]))
