import pytest

from asrnorm.bench import growth
from asrnorm.bench.growth import COUNTS, MIDDLE, norm_names, run, shape_at
from asrnorm.core.errors import UnknownNameError
from asrnorm.models import create_model


def test_one_size_moves_at_a_time():
    assert shape_at("C", 16)[1:5] == (128, 16, 32, 32)
    assert shape_at("N", 1)[1:5] == (1, 128, 32, 32)
    assert shape_at("HW", 12544)[1:5] == (128, 128, 112, 112)
    assert all(round(value**0.5) ** 2 == value for value in growth.AXES["HW"])
    assert MIDDLE.c in growth.AXES["C"]


def test_the_network_is_converted_layer_by_layer():
    names = norm_names(create_model("wrn_40_4"), 100)
    assert len(names) == COUNTS[-1] == 37
    assert names[-1] == "norm"


def test_every_axis_has_its_points():
    rows = [row for part in run(quick=True) for row in part]
    found = {(row.extra["axis"], row.extra["value"]) for row in rows}
    assert found == {("C", 4), ("C", 8), ("HW", 4), ("HW", 16), ("N", 1), ("N", 2), ("layers", 1)}
    assert {row.path for row in rows if row.extra["axis"] == "layers"} == {"bn", "asr"}


def test_one_axis_can_be_measured_alone():
    rows = [row for part in run(quick=True, only="N") for row in part]
    assert {(row.extra["axis"], row.extra["value"]) for row in rows} == {("N", 1), ("N", 2)}
    with pytest.raises(UnknownNameError, match=r"axis 'layer'; did you mean 'layers'"):
        next(run(quick=True, only="layer"))
