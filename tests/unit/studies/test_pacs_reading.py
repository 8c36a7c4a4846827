import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import collect, get_study
from asrnorm.studies.pacs_reading import COLUMNS
from asrnorm.studies.reading import CHOOSE_BY
from helpers.study_case import put_result


@pytest.mark.parametrize("name", ["pacs-reading", "pacs-multi-reading"])
def test_what_may_be_chosen_by_stands_first_and_is_of_the_source(name):
    study = get_study(name)
    assert study.columns[:2] == tuple(CHOOSE_BY.values())
    for row in study.rows:
        assert set(row.cells) == set(COLUMNS)
        assert {row.cells[column].measure.quantity for column in study.columns[:2]} == {"validation"}
        assert len(row.cells["Unseen"].runs) == 4


@pytest.mark.parametrize("name", ["pacs-reading", "pacs-multi-reading"])
def test_rows_are_different_runs(name):
    study = get_study(name)
    first = [row.cells["Photo"].runs[0].config(0, "paper") for row in study.rows]
    assert len({str(config) for config in first}) == len(study.rows)


def test_validation_is_averaged_over_the_sources(tmp_path):
    study = get_study("pacs-reading")
    row = study.rows[0]
    for number, spec in enumerate(row.cells["Unseen"].runs):
        put_result(tmp_path, spec, 0, {"sketch": 0.5}, validation={"source-val": 0.1 * number})
    found = collect(study, runs=tmp_path, seeds=[0])
    assert abs(found.cells[row.label, "Source, held out"].mean - 15) < 1e-9
    assert (row.label, "Source, shifted") not in found.cells


def test_what_table_4_is_of_stands_among_its_readings():
    def hashes(row):
        return {content_hash(run.config(0, "paper")) for run in row.cells[list(row.cells)[-1]].runs}

    readings = set().union(*map(hashes, get_study("pacs-multi-reading").rows))
    printed = {row.label: row for row in get_study("table4").rows}
    for label in ("ERM", "RSC", "RSC + ASR-Norm"):
        assert len(hashes(printed[label])) == 4
        assert hashes(printed[label]) <= readings
