import csv
import io
from dataclasses import replace

from asrnorm.reporting.entry import DASH, lay_out
from asrnorm.reporting.table import CSV_COLUMNS, legend, overview, to_csv, to_markdown
from asrnorm.studies import collect, get_study
from helpers.made_up_run import make_up_runs


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
    assert f"| ERM | {erm.mean:.1f} ± {erm.deviation:.1f}<br>(27.8)[1] |" in lines[2]
    assert f"| CCSA (not run) | (25.9)[1] | {DASH} | (49.1)[1] |" in lines
    assert any(line.startswith("| ADA | *missing*<br>(35.5) |") for line in lines)
    assert "| *ours* |  |  |  |" in lines
    assert {line.count("|") for line in lines} == {5}


def test_rows_that_are_not_run_share_one_line_with_their_reasons(small):
    assert "\n\nNot run: CCSA (no public code).\n\n" in to_markdown(small)
    ccsa = next(row for row in small.study.rows if row.label == "CCSA")
    others = [
        replace(ccsa, label="JiGen", not_run="not run: not built; it sees <targets>"),
        replace(ccsa, label="d-SNE"),
    ]
    study = replace(small.study, rows=(*small.study.rows, *others, replace(ccsa, label="bare", not_run="not run")))
    text = to_markdown(replace(small, study=study))
    assert "Not run: CCSA, d-SNE (no public code); JiGen (not built; it sees &lt;targets>); bare." in text


def test_names_of_columns_break_no_table(small):
    columns = ("a<b>|c", *small.study.columns[1:])
    sheet = lay_out(small)
    entries = {(row, "a<b>|c" if column == "SVHN" else column): entry for (row, column), entry in sheet.entries.items()}
    head, *_ = overview(replace(sheet, columns=columns, entries=entries)).splitlines()
    assert head == "|  | a&lt;b>\\|c | USPS | Avg. |"


def test_the_page_has_warnings_n_p_and_the_provenance(small):
    text = to_markdown(replace(small, warnings=("the table mixes runs of 2 commits: a, b",)))
    assert "> **Warning:** the table mixes runs of 2 commits" in text
    assert "| row | column | ours | paper | difference | n | p |" in text
    assert "against RSDA |" in text
    assert "| RSDA + ASR-Norm | RSDA | SVHN |" in text
    assert "commit f1c710000000." in text
    assert "[2] It averages to 65.3." in text


def test_the_legend_has_the_signs_that_are_in_the_table_and_no_others(small):
    said = legend(small, lay_out(small)).splitlines()[0]
    assert said.endswith(
        "our best in bold. In brackets: the paper's number as printed, unless a footnote says "
        "otherwise. *missing*: not run yet."
    )
    rows = tuple(row for row in small.study.rows if row.label == "ERM")
    bare = replace(small, study=replace(small.study, rows=rows, comparisons=()), printed={}, tests=())
    assert legend(bare, lay_out(bare)).splitlines()[0] == "Ours: mean ± standard deviation (n - 1), smoke scale."
    cells = {place: cell for place, cell in small.cells.items() if place != ("ERM", "USPS")}
    bare = replace(bare, cells=cells, no_data=frozenset({("ERM", "USPS")}))
    assert " scale. *no data*: run without the images of the column." in legend(bare, lay_out(bare))
    assert "| *no data* |" in overview(lay_out(bare))


def test_footnotes_to_what_is_not_shown_are_left_out(tmp_path):
    study = get_study("table9")
    make_up_runs(study, tmp_path, seeds=range(3))
    found = collect(study, runs=tmp_path, scale="smoke", seeds=range(3))
    sheet, note = lay_out(found), "[3] One-sided in the other direction: ASR-Norm is lower there."
    assert note in to_markdown(found)
    assert "| 0.193[3] |" in to_markdown(found)
    assert note not in legend(found, sheet)  # the table alone
    few = collect(study, runs=tmp_path, scale="smoke", seeds=range(2))
    assert "[3]" not in to_markdown(few)
