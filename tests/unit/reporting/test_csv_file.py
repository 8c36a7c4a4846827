import csv
import io
from dataclasses import replace

from asrnorm.reporting.csv_file import COLUMNS, to_csv
from asrnorm.reporting.sheet import build_sheet


def test_csv_has_a_line_a_cell_and_full_numbers(small):
    rows = list(csv.DictReader(io.StringIO(to_csv(build_sheet(small)))))
    assert tuple(rows[0]) == COLUMNS
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
    rows = csv.DictReader(io.StringIO(to_csv(build_sheet(several))))
    tested = next(row for row in rows if row["p"])
    assert (tested["p"], tested["p_against"]) == (f"{first.pooled};0.25", "RSDA;ERM")
