"""Tables 3 and 4: which rows there are, where their norms stand, and what they are held against."""

import pytest

from asrnorm.studies import get_study


@pytest.mark.parametrize("name", ["table3", "table4", "table8"])
def test_five_seeds_are_the_default(name):
    assert get_study(name).seeds == 5


def test_rows_that_are_not_in_the_paper_have_no_number_of_it():
    rows = {row.label: row for row in get_study("table3").rows}
    for label in ("ERM + IN", "ERM + AS", "ERM + AR", "ERM + ASR-Norm"):
        assert all(cell.printed is None and cell.runs for cell in rows[label].cells.values())
    (row,) = (row for row in get_study("table4").rows if row.label == "ERM + ASR-Norm")
    assert all(cell.printed is None and cell.runs for cell in row.cells.values())


def test_the_parts_of_asr_stand_in_the_same_layers():
    rows = {row.label: row for row in get_study("table3").rows}
    configs = [rows[f"ERM + {n}"].cells["Photo"].runs[0].config(0, "paper") for n in ("IN", "AS", "AR", "ASR-Norm")]
    assert {config.layers for config in configs} == {"early"}
    assert [config.norm.name for config in configs] == ["in", "as", "ar", "asr"]
    assert len({str((config.optim, config.steps, config.batch_size, config.selection)) for config in configs}) == 1


@pytest.mark.parametrize("name", ["table3", "table4"])
def test_asr_under_erm_is_held_against_erm(name):
    assert ("ERM + ASR-Norm", "ERM") in {(pair.row, pair.against) for pair in get_study(name).comparisons}
