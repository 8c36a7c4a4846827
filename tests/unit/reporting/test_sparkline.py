import math
from xml.etree import ElementTree

from asrnorm.reporting.sparkline import sparkline


def test_a_line_a_curve_inside_the_box():
    svg = ElementTree.fromstring(sparkline([[(0, 2.0), (50, 1.0), (100, 0.5)], [(0, 1.5), (100, 0.2)]], "loss"))
    lines = svg.findall("polyline")
    assert len(lines) == 2
    width, height = float(svg.get("width")), float(svg.get("height"))
    for line in lines:
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_nan_is_marked_where_it_came():
    assert "NaN" in sparkline([[(0, 2.0), (10, 1.0), (20, math.nan)]], "loss")
    assert "NaN" not in sparkline([[(0, 2.0), (10, 1.0)]], "loss")


def test_nothing_to_draw_is_nothing():
    assert sparkline([], "loss") == ""
    assert sparkline([[(0, math.nan)]], "loss") == ""


def test_a_flat_curve_and_a_single_point_do_not_divide_by_zero():
    assert "<polyline" in sparkline([[(5, 1.0)]], "loss")
    assert "<polyline" in sparkline([[(0, 1.0), (5, 1.0)]], "loss")


def test_higher_values_and_later_steps_are_drawn_higher_and_further_right():
    svg = ElementTree.fromstring(sparkline([[(0, 2.0), (50, 1.0), (100, 0.5)]], "loss"))
    points = [tuple(map(float, point.split(","))) for point in svg.find("polyline").get("points").split()]
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)  # down the page, as the loss falls
