from dataclasses import replace

import pytest

from asrnorm.reporting.markdown import comparisons, escape, legend, overview, pipe_table, to_markdown
from asrnorm.reporting.sheet import build_sheet
from asrnorm.reporting.text import DASH
from asrnorm.studies import collect, get_study
from helpers.made_up_run import make_up_runs


def page(collected):
    return to_markdown(build_sheet(collected))


def test_a_name_stays_in_its_cell_whatever_it_holds():
    assert escape("ni\nght | *a*\r\n<b>") == r"ni ght \| \*a\* &lt;b>"


def test_columns_of_numbers_are_set_to_the_right():
    assert pipe_table([["row", "run", "n"]], words=2).splitlines()[1] == "| --- | --- | ---: |"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a\\|b", "a\\\\\\|b"),
        ("&lt;i&gt;", "&amp;lt;i&amp;gt;"),
        ("`code`", "\\`code\\`"),
        ("x <b>", "x &lt;b>"),
        ("é\n1", "é 1"),
    ],
)
def test_names_are_read_as_they_are(name, written):
    assert escape(name) == written


@pytest.mark.parametrize(("columns", "rows", "turned"), [(9, 2, False), (10, 2, True), (10, 9, True), (10, 10, False)])
def test_a_table_that_is_wide_and_not_long_is_turned(columns, rows, turned):
    grid = [[f"{row}.{column}" for column in range(columns)] for row in range(rows)]
    lines = [line.strip("| ").split(" | ") for line in pipe_table(grid, words=2, turn=True).splitlines()]
    assert lines[1] == (["---"] + ["---:"] * (rows - 1) if turned else ["---"] * 2 + ["---:"] * (columns - 2))
    found = [lines[0], *lines[2:]]
    assert found == ([list(column) for column in zip(*grid, strict=True)] if turned else grid)


def test_markdown_shows_ours_the_papers_and_what_is_missing(small):
    lines = overview(build_sheet(small)).splitlines()
    assert lines[0] == "|  | SVHN | USPS | Avg. |"
    erm = small.cells["ERM", "SVHN"]
    assert f"| ERM | {erm.mean:.1f} ± {erm.deviation:.1f}<br>(27.8)[1] |" in lines[2]
    assert f"| CCSA (not run) | (25.9)[1] | {DASH} | (49.1)[1] |" in lines
    assert any(line.startswith("| ADA | *missing*<br>(35.5) |") for line in lines)
    assert "| *ours* |  |  |  |" in lines
    assert {line.count("|") for line in lines} == {5}


def test_rows_that_are_not_run_share_one_line_with_their_reasons(small):
    assert "\n\nNot run: CCSA (no public code).\n\n" in page(small)
    ccsa = next(row for row in small.study.rows if row.label == "CCSA")
    others = [
        replace(ccsa, label="JiGen", not_run="not run: not built; it sees <targets>"),
        replace(ccsa, label="d-SNE"),
    ]
    study = replace(small.study, rows=(*small.study.rows, *others, replace(ccsa, label="bare", not_run="not run")))
    text = page(replace(small, study=study))
    assert "Not run: CCSA, d-SNE (no public code); JiGen (not built; it sees &lt;targets>); bare." in text


def test_names_of_columns_break_no_table(small):
    columns = ("a<b>|c", *small.study.columns[1:])
    sheet = build_sheet(small)
    cells = {(row, "a<b>|c" if column == "SVHN" else column): cell for (row, column), cell in sheet.cells.items()}
    head, *_ = overview(replace(sheet, columns=columns, cells=cells)).splitlines()
    assert head == "|  | a&lt;b>\\|c | USPS | Avg. |"


def test_the_page_has_warnings_n_p_and_the_provenance(small):
    text = page(replace(small, warnings=("the table mixes runs of 2 commits: a, b",)))
    assert "> **Warning:** the table mixes runs of 2 commits" in text
    assert "| row | column | ours | paper | difference | n | p |" in text
    assert "against RSDA |" in text
    assert "| RSDA + ASR-Norm | RSDA | SVHN |" in text
    assert "commit f1c710000000." in text
    assert "[2] It averages to 65.3." in text


def test_the_legend_has_the_signs_that_are_in_the_table_and_no_others(small):
    said = legend(build_sheet(small)).splitlines()[0]
    assert said.endswith(
        "our best in bold. In brackets: the paper's number as printed, unless a footnote says "
        "otherwise. *missing*: not run yet."
    )
    rows = tuple(row for row in small.study.rows if row.label == "ERM")
    bare = replace(small, study=replace(small.study, rows=rows, comparisons=()), printed={}, tests=())
    assert legend(build_sheet(bare)).splitlines()[0] == "Ours: mean ± standard deviation (n - 1), smoke scale."
    cells = {place: cell for place, cell in small.cells.items() if place != ("ERM", "USPS")}
    bare = replace(bare, cells=cells, no_data=frozenset({("ERM", "USPS")}))
    assert " scale. *no data*: run without the images of the column." in legend(build_sheet(bare))
    assert "| *no data* |" in overview(build_sheet(bare))


def test_footnotes_to_what_is_not_shown_are_left_out(tmp_path):
    study = get_study("table9")
    make_up_runs(study, tmp_path, seeds=range(3))
    found = collect(study, runs=tmp_path, scale="smoke", seeds=range(3))
    sheet, note = build_sheet(found), "[3] One-sided in the other direction: ASR-Norm is lower there."
    assert note in page(found)
    assert "| 0.193[3] |" in page(found)
    assert note not in legend(sheet)  # the table alone
    few = collect(study, runs=tmp_path, scale="smoke", seeds=range(2))
    assert "[3]" not in page(few)


def test_a_comparison_has_its_numbers_under_their_heads(small):
    facts = {"difference": 5.44, "low": -1.26, "high": 12.3, "n": 5, "n_against": 4}
    test = replace(small.tests[0], **facts, pooled=0.1, welch=0.2, paired=0.3, holm=0.4)
    head, _, line, *_ = comparisons(build_sheet(replace(small, tests=(test,)))).splitlines()
    found = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert found["difference"] == "+5.4"
    assert found["95 % interval"] == "\N{MINUS SIGN}1.3 to 12.3"
    assert found["n"] == "5, 4"
    assert [found[name] for name in ("pooled", "Welch", "paired")] == ["0.100", "0.200", "0.300"]
    assert found["Holm"] == "0.400"
    assert line.endswith("| 0.036 |")  # the paper's


def test_the_papers_p_values_have_a_column_where_there_are_any(small):
    lines = comparisons(build_sheet(small)).splitlines()
    assert lines[0].endswith("| Holm | paper |")
    assert [line.rsplit(" | ", 1)[1] for line in lines[2:5]] == ["0.036 |", "< 0.001 |", f"{DASH} |"]
    pairs = tuple(replace(pair, printed={}) for pair in small.study.comparisons)
    bare = replace(small, study=replace(small.study, comparisons=pairs))
    assert comparisons(build_sheet(bare)).splitlines()[0].endswith("| Holm |")


def test_without_any_test_a_pair_is_a_line_of_differences(small):
    nothing = {"low": None, "high": None, "pooled": None, "welch": None, "paired": None, "holm": None, "n": 2}
    gaps = zip(small.tests, (5.44, -0.71, 0.0), (1, 2, 2), strict=True)
    tests = tuple(replace(test, **nothing, difference=gap, n_against=n) for test, gap, n in gaps)
    head, _, line, _, note = comparisons(build_sheet(replace(small, tests=tests))).splitlines()
    assert head == "| row | against | n | SVHN | USPS | Avg. |"
    assert line == "| RSDA + ASR-Norm | RSDA | 2, 1 to 2 | +5.4 | \N{MINUS SIGN}0.7 | 0.0 |"
    assert note.endswith("There is no p-value with fewer than three seeds per row.")
    assert "pooled" not in note
    fewer = comparisons(build_sheet(replace(small, tests=tests[:1]))).splitlines()
    assert fewer[0] == "| row | against | n | SVHN |"
