import re

from asrnorm.audit.chart import Line, curves, legend, reliability


def test_a_curve_goes_through_its_values_and_leaves_out_what_is_missing():
    svg = curves([Line("a & b", [1.0, None, 0.0])], ["clean", "1", "2"], "x")
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', svg)]
    assert len(heights) == 2
    assert heights[0] < heights[1]  # SVG counts from the top
    assert "a &amp; b, 2: 0.0 %" in svg


def test_bars_stand_where_their_bin_is_and_as_high_as_it_is_right():
    svg = reliability([[0, 0, 0.0], [4, 4, 0.6], [2, 1, 0.9]], "x")
    bars = [tuple(map(float, found)) for found in re.findall(r'<rect[^>]* x="([\d.]+)"[^>]*height="([\d.]+)"', svg)]
    assert len(bars) == 2
    assert bars[0][0] < bars[1][0]
    assert abs(bars[0][1] - 2 * bars[1][1]) < 0.2


def test_the_legend_tells_dashed_from_plain():
    text = legend([Line("plain", []), Line("dashed", [], color=1, dashed=True)])
    assert 'class="key c0"' in text
    assert 'class="key c1 dashed"' in text
