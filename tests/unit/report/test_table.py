import csv
import io
from dataclasses import replace

from asrnorm.report.entry import DASH, lay_out
from asrnorm.report.table import CSV_COLUMNS, comparisons, legend, overview, provenance, to_csv, to_markdown


def test_csv_has_a_line_a_cell_and_full_numbers(small):
    rows = list(csv.DictReader(io.StringIO(to_csv(small))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == 6 * 3
    first = rows[0]
    measured = small.cells["ERM", "SVHN"]
    assert float(first["ours"]) == measured.mean
    assert float(first["difference"]) == measured.mean - 27.8
    assert first["values"].split() == [str(value) for value in measured.values]
    assert first["copied_from"] == "M-ADA"
    missing = next(row for row in rows if row["row"] == "ADA")
    assert (missing["state"], missing["ours"], missing["paper"]) == ("missing", "", "35.5")
    tested = next(row for row in rows if row["row"] == "RSDA + ASR-Norm")
    assert float(tested["p"]) == small.tests[0].pooled
    assert tested["p_against"] == "RSDA"


def test_csv_has_the_p_values_of_all_comparisons(small):
    first = small.tests[0]
    several = replace(small, tests=(first, replace(first, against="ERM", pooled=0.25)))
    rows = csv.DictReader(io.StringIO(to_csv(several)))
    tested = next(row for row in rows if row["p"])
    assert (tested["p"], tested["p_against"]) == (f"{first.pooled};0.25", "RSDA;ERM")


def test_markdown_shows_ours_the_papers_and_what_is_missing(small):
    lines = overview(lay_out(small)).splitlines()
    assert lines[0] == "|  | SVHN | USPS | Avg. |"
    erm = small.cells["ERM", "SVHN"]
    assert f"| ERM | {erm.mean:.1f} ± {erm.deviation:.1f} (27.8)[1] |" in lines[2]
    assert f"| CCSA (not run: no public code) | (25.9)[1] | {DASH} | (49.1)[1] |" in lines
    assert any(line.startswith("| ADA | *missing* (35.5) |") for line in lines)
    assert "| *ours* |  |  |  |" in lines
    assert {line.count("|") for line in lines} == {5}


def test_the_page_has_warnings_n_p_and_the_provenance(small):
    text = to_markdown(replace(small, warnings=("runs of 2 commits stand in one table: a, b",)))
    assert "> **Warning:** runs of 2 commits" in text
    assert "| row | column | ours | paper | difference | n | p |" in text
    assert "against RSDA |" in text
    assert "| RSDA + ASR-Norm | RSDA | SVHN |" in text
    assert "commit f1c710000000." in text
    assert "[2] It averages to 65.3." in text


def test_the_legend_has_the_signs_that_are_in_the_table_and_no_others(small):
    said = legend(small, lay_out(small)).splitlines()[0]
    assert said.endswith(
        "best of ours in bold. In brackets: the paper's number, as printed but where a note says "
        "otherwise. *missing*: not run yet."
    )
    rows = tuple(row for row in small.study.rows if row.label == "ERM")
    bare = replace(small, study=replace(small.study, rows=rows, comparisons=()), printed={}, tests=())
    assert legend(bare, lay_out(bare)).splitlines()[0] == "Ours: mean ± standard deviation (n - 1), smoke scale."
    cells = {place: cell for place, cell in small.cells.items() if place != ("ERM", "USPS")}
    bare = replace(bare, cells=cells, no_data=frozenset({("ERM", "USPS")}))
    assert " scale. *no data*: run, but without the images of the column." in legend(bare, lay_out(bare))
    assert "| *no data* |" in overview(lay_out(bare))


def test_nothing_measured_has_no_provenance(small):
    assert provenance(replace(small, cells={})) == ""


def test_a_comparison_has_its_numbers_under_their_heads(small):
    facts = {"difference": 5.44, "low": -1.26, "high": 12.3, "n": 5, "n_against": 4}
    test = replace(small.tests[0], **facts, pooled=0.1, welch=0.2, paired=0.3, holm=0.4)
    head, _, line = comparisons([test], lay_out(small)).splitlines()
    found = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert found["difference"] == "+5.4"
    assert found["95 % interval"] == "\N{MINUS SIGN}1.3 to 12.3"
    assert found["n"] == "5, 4"
    assert [found[name] for name in ("pooled", "Welch", "paired")] == ["0.100", "0.200", "0.300"]
    assert line.endswith("| 0.400 |")
