"""The growth of the cost as a figure: `python -m tools.bench_plot` draws `docs/assets/growth--<machine>.svg`.

Time above, memory below; against channels, positions, samples and the number of ASR layers; dashed what the bytes alone
would take.
"""

import io
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.errors import MissingDependencyError

AXES = {"C": "channels", "HW": "positions", "N": "samples", "layers": "ASR layers of WRN-40-4"}
# Okabe and Ito's palette, by way, so that a way has its color in every panel.
_COLORS = {
    "asr, fused": "#0072B2",
    "asr": "#0072B2",
    "asr, reference": "#56B4E9",
    "bn": "#E69F00",
    "gn, torch": "#009E73",
}
_GRAY = "#808080"
_STYLE = {"font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "asrnorm", "figure.constrained_layout.use": True}

Rows = list[dict[str, Any]]


def series(rows: Rows, axis: str, value: str) -> dict[str, list[tuple[float, float]]]:
    """Return points by way along one axis, where the value was measured.

    Example:
        >>> rows = [{"path": "asr", "extra": {"axis": "C", "value": c, "ms": c / 2}} for c in (8, 4)]
        >>> series(rows, "C", "ms")
        {'asr': [(4, 2.0), (8, 4.0)]}
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        extra = row["extra"]
        if extra.get("axis") == axis and extra.get(value) is not None:
            points.setdefault(row["path"], []).append((extra["value"], extra[value]))
    return {path: sorted(found) for path, found in points.items()}


def draw(rows: Rows) -> str:
    """Return the figure as SVG text.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        raise MissingDependencyError("figures need matplotlib: pip install 'asrnorm[data]'") from None
    with pyplot.rc_context(_STYLE):
        values = {"ms": "time, ms"} | ({"peak_mb": "peak memory, MB"} if _has(rows, "peak_mb") else {})
        figure, panels = pyplot.subplots(len(values), len(AXES), figsize=(11, 2.8 * len(values)), squeeze=False)
        for line, (value, label) in enumerate(values.items()):
            for column, (axis, name) in enumerate(AXES.items()):
                _panel(panels[line][column], rows, axis, value)
                panels[line][column].set_xlabel(name, color=_GRAY)
            panels[line][0].set_ylabel(label, color=_GRAY)
        ways = panels[0][0].get_legend_handles_labels()
        figure.legend(*ways, loc="outside upper center", ncols=len(ways[1]), frameon=False, labelcolor=_GRAY)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _has(rows: Rows, value: str) -> bool:
    return any(row["extra"].get(value) is not None for row in rows)


def _panel(axes: Any, rows: Rows, axis: str, value: str) -> None:
    for path, points in series(rows, axis, value).items():
        axes.plot(*zip(*points, strict=True), color=_COLORS.get(path, _GRAY), label=path, linewidth=1.5, marker=".")
    if value == "ms":
        floors = {points[0]: points[1] for found in series(rows, axis, "floor_ms").values() for points in found}
        if floors:
            axes.plot(*zip(*sorted(floors.items()), strict=True), "--", color=_GRAY, label="bytes alone", linewidth=1)
    if axis != "layers":
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
    axes.tick_params(colors=_GRAY, labelsize=7)
    for spine in axes.spines.values():
        spine.set_color(_GRAY)


def main(root: Path) -> int:
    """Draw a figure of all `growth...--<machine>.json` of a source tree for every machine; return how many."""
    rows: dict[str, Rows] = {}
    for file in sorted((root / "bench" / "results").glob("growth*--*.json")):
        machine = file.stem.partition("--")[2]
        rows.setdefault(machine, []).extend(json.loads(file.read_text())["rows"])
    for machine, found in rows.items():
        target = root / "docs" / "assets" / f"growth--{machine}.svg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(draw(found))
    return len(rows)


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))} figures drawn\n")
