import json

from asrnorm.models import create_model
from tools.bench_growth import AXES, COUNTS, MIDDLE, main, norm_names, run, shape_at


def test_one_size_moves_at_a_time():
    assert shape_at("C", 16)[1:5] == (128, 16, 32, 32)
    assert shape_at("N", 1)[1:5] == (1, 128, 32, 32)
    assert shape_at("HW", 12544)[1:5] == (128, 128, 112, 112)
    assert all(round(value**0.5) ** 2 == value for value in AXES["HW"])
    assert MIDDLE.c in AXES["C"]


def test_the_network_is_converted_layer_by_layer():
    names = norm_names(create_model("wrn_40_4"), 100)
    assert len(names) == COUNTS[-1] == 37
    assert names[-1] == "norm"


def test_every_axis_has_its_points():
    rows = [row for part in run(quick=True) for row in part]
    found = {(row.extra["axis"], row.extra["value"]) for row in rows}
    assert found == {("C", 4), ("C", 8), ("HW", 4), ("HW", 16), ("N", 1), ("N", 2), ("layers", 1)}
    assert {row.path for row in rows if row.extra["axis"] == "layers"} == {"bn", "asr"}


def test_one_axis_can_be_measured_alone(tmp_path):
    main(["--only", "N", "--quick", "--device", "cpu", "--json", str(tmp_path / "growth.json")])
    rows = json.loads((tmp_path / "growth.json").read_text())["rows"]
    assert {(row["extra"]["axis"], row["extra"]["value"]) for row in rows} == {("N", 1), ("N", 2)}
