"""Columns of the benchmark tables, on the screen and in the docs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Values = Mapping[str, Any]


class Column(NamedTuple):
    """A heading and the function that formats its cell from a stored row."""

    heading: str
    show: Callable[[Values], str]


def _extra(name: str, form: str) -> Callable[[Values], str]:
    def show(row: Values) -> str:
        value = row.get("extra", {}).get(name)
        return "" if value is None else format(value, form)

    return show


def _spread_ms(row: Values) -> str:
    items = row["extra"]["ms"] * row["per_second"]
    return f"{items / row['p80']:.3f} to {items / row['p20']:.3f}"


def _measured(row: Values) -> str:
    extra = row["extra"]
    images = "generated" if extra["images"] == "made" else extra["images"]
    rest = f"{extra['precision']}; {images} images"
    if extra.get("sharing"):
        rest += f"; GPU shared by {extra['sharing']}"
    if not extra["scaled"]:
        return f"measured in full; {rest}"
    count = extra["measured_grows"]
    grows = f" and {count} {'search or ascent' if count == 1 else 'searches or ascents'}" if count else ""
    return f"scaled from {extra['measured_steps']:,} steps{grows}; {rest}"


def _counted(row: Values) -> str:
    return f"scaled from {row['extra']['measured_images']:,} images" if row["extra"]["scaled"] else "measured in full"


_RATE = (
    Column("images/s", lambda row: f"{row['per_second']:,.0f}"),
    Column("p20 to p80", lambda row: f"{row['p20']:,.0f} to {row['p80']:,.0f}"),
)
_RATIO = Column("times the baseline", lambda row: f"{row['ratio']:.2f}")
_MS = (Column("ms", _extra("ms", ".3f")), Column("p20 to p80", _spread_ms))
_TIMES = Column("times the baseline's time", _extra("times_baseline", ".2f"))
_FLOOR = Column("times the floor", _extra("times_floor", ".2f"))
_PEAK = Column("peak, MB", _extra("peak_mb", ",.1f"))
_MEMORY = Column("times BatchNorm's memory", _extra("memory_ratio", ".2f"))

COLUMNS: dict[str, tuple[Column, ...]] = {
    "data": (*_RATE, _RATIO),
    "corruptions": (*_RATE, _RATIO),
    "layers": (
        *_MS,
        Column("times BatchNorm's time", _extra("times_baseline", ".2f")),
        _FLOOR,
        Column("times GroupNorm's time", _extra("times_group_norm", ".2f")),
        Column("kept for backward, MB", _extra("saved_mb", ",.2f")),
        _PEAK,
        _MEMORY,
    ),
    "step": (*_MS, _TIMES, Column("activations, MB", _extra("activation_mb", ",.0f")), _MEMORY),
    "train": (
        Column("steps/s", lambda row: f"{row['per_second']:,.1f}"),
        Column("whole training, s", _extra("seconds", ",.1f")),
        _TIMES,
        Column("how", _measured),
    ),
    "evaluate": (*_RATE, _TIMES, Column("all images, s", _extra("seconds", ",.1f")), Column("how", _counted)),
}
"""Columns by benchmark suite."""
