import json

import pytest

from tools.bench_plot import main, series

ROWS = [
    {"path": path, "extra": {"axis": axis, "value": value, "ms": 1.0 + value, "floor_ms": 0.5, "peak_mb": memory}}
    for axis in ("C", "HW", "N", "layers")
    for path, memory in (("asr, fused", 3.0), ("bn", None))
    for value in (8, 4)
]


def test_points_are_sorted_and_what_was_not_measured_is_left_out():
    assert series(ROWS, "C", "ms")["bn"] == [(4, 5.0), (8, 9.0)]
    assert list(series(ROWS, "C", "peak_mb")) == ["asr, fused"]


def test_one_figure_is_drawn_of_all_files_of_a_machine(tmp_path):
    pytest.importorskip("matplotlib")
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    (results / "growth--h200.json").write_text(json.dumps({"rows": ROWS}))
    assert main(tmp_path) == 1
    whole = (tmp_path / "docs" / "assets" / "growth--h200.svg").read_text()
    assert whole.startswith("<svg")
    by_axis = {last: [row for row in ROWS if (row["extra"]["axis"] == "layers") is last] for last in (False, True)}
    (results / "growth--h200.json").write_text(json.dumps({"rows": by_axis[False]}))
    (results / "growth-layers--h200.json").write_text(json.dumps({"rows": by_axis[True]}))
    assert main(tmp_path) == 1
    assert (tmp_path / "docs" / "assets" / "growth--h200.svg").read_text() == whole
