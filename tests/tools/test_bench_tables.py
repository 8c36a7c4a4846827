import json

import pytest

from asrnorm.bench.column import COLUMNS
from tools.bench_tables import render, rewrite

MACHINE = {
    "cpu": "X",
    "cores": 2,
    "threads": 2,
    "gpu": "G",
    "python": "3.11",
    "torch": "2",
    "pillow": "1",
    "commit": "abc",
    "time": "2026-01-01T00:00:00Z",
}
EXTRA = {
    "layers": {"ms": 2.0, "times_baseline": 1.25, "times_floor": 1.5, "times_group_norm": None, "saved_mb": 3.0},
    "step": {"ms": 2.0, "times_baseline": 1.25, "activation_mb": None, "memory_ratio": None},
    "eager": {"ms": 2.0, "times_baseline": 1.9, "host_us": 578.4},
    "train": {
        "seconds": 300.0,
        "times_baseline": 0.5,
        "scaled": True,
        "measured_steps": 50_000,
        "measured_grows": 50,
        "precision": "float32",
        "images": "made",
    },
    "evaluate": {"seconds": 12.0, "times_baseline": 1.1, "scaled": False, "measured_images": 950_000},
    "data": {},
    "corruptions": {},
}


def content(suite):
    row = {"work": "w", "path": "p", "per_second": 1000.0, "p20": 500.0, "p80": 2000.0, "ratio": 1.0}
    return {"suite": suite, "machine": MACHINE, "rows": [{**row, "extra": EXTRA[suite]}]}


@pytest.mark.parametrize("suite", sorted({*COLUMNS} - {"corruptions"}))
def test_every_suite_has_a_table_as_wide_as_its_heading(suite):
    lines = render(content(suite)).splitlines()
    assert len({line.count("|") for line in lines[2:]}) == 1
    assert lines[2].count("|") == len(COLUMNS[suite]) + 3


def test_corruptions_have_a_column_for_every_way():
    made = content("corruptions")
    made["rows"] += [{**made["rows"][0], "path": "q", "per_second": 2e3}, {**made["rows"][0], "work": "v"}]
    assert render(made).splitlines()[2:] == [
        "| images per second | p | q |",
        "| --- | ---: | ---: |",
        "| w | 1,000 | 2,000 |",
        "| v | 1,000 |  |",
    ]


def test_times_are_spread_as_the_rates_are():
    assert "| 2.000 | 1.000 to 4.000 | 1.25 | 1.50 |  |" in render(content("layers"))


def test_a_scaled_number_says_so():
    assert "scaled from 50,000 steps and 50 searches or ascents; float32; generated images" in render(content("train"))
    once = content("train")
    once["rows"][0]["extra"]["measured_grows"] = 1
    assert "scaled from 50,000 steps and 1 search or ascent; " in render(once)


def test_blocks_are_written_from_their_files(tmp_path):
    (tmp_path / "step--h200.json").write_text(json.dumps(content("step")))
    blocks = [f"<!-- bench: {name} -->\nold\n<!-- end bench -->\n" for name in ("step--h200.json", "targets--h200")]
    page = "\n".join(blocks)
    new = rewrite(page, tmp_path)
    assert "old" not in new
    assert "| w | p | 2.000 |" in new
    assert "not yet" in new
    assert rewrite(new, tmp_path) == new
