from dataclasses import replace

from asrnorm.reporting.comparison import compare_in_markdown
from asrnorm.reporting.entry import DASH, lay_out


def test_a_comparison_has_its_numbers_under_their_heads(small):
    facts = {"difference": 5.44, "low": -1.26, "high": 12.3, "n": 5, "n_against": 4}
    test = replace(small.tests[0], **facts, pooled=0.1, welch=0.2, paired=0.3, holm=0.4)
    head, _, line, *_ = compare_in_markdown(replace(small, tests=(test,)), lay_out(small)).splitlines()
    found = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert found["difference"] == "+5.4"
    assert found["95 % interval"] == "\N{MINUS SIGN}1.3 to 12.3"
    assert found["n"] == "5, 4"
    assert [found[name] for name in ("pooled", "Welch", "paired")] == ["0.100", "0.200", "0.300"]
    assert found["Holm"] == "0.400"
    assert line.endswith("| 0.036 |")  # the paper's


def test_the_papers_p_values_have_a_column_where_there_are_any(small):
    sheet = lay_out(small)
    lines = compare_in_markdown(small, sheet).splitlines()
    assert lines[0].endswith("| Holm | paper |")
    assert [line.rsplit(" | ", 1)[1] for line in lines[2:5]] == ["0.036 |", "< 0.001 |", f"{DASH} |"]
    pairs = tuple(replace(pair, printed={}) for pair in small.study.comparisons)
    bare = replace(small, study=replace(small.study, comparisons=pairs))
    assert compare_in_markdown(bare, sheet).splitlines()[0].endswith("| Holm |")


def test_without_any_test_a_pair_is_a_line_of_differences(small):
    nothing = {"low": None, "high": None, "pooled": None, "welch": None, "paired": None, "holm": None, "n": 2}
    gaps = zip(small.tests, (5.44, -0.71, 0.0), (1, 2, 2), strict=True)
    tests = tuple(replace(test, **nothing, difference=gap, n_against=n) for test, gap, n in gaps)
    sheet = lay_out(small)
    head, _, line, _, note = compare_in_markdown(replace(small, tests=tests), sheet).splitlines()
    assert head == "| row | against | n | SVHN | USPS | Avg. |"
    assert line == "| RSDA + ASR-Norm | RSDA | 2, 1 to 2 | +5.4 | \N{MINUS SIGN}0.7 | 0.0 |"
    assert note.endswith("There is no p-value with fewer than three seeds per row.")
    assert "pooled" not in note
    fewer = compare_in_markdown(replace(small, tests=tests[:1]), sheet).splitlines()
    assert fewer[0] == "| row | against | n | SVHN |"
