"""Which studies, rows and runs `asrnorm reproduce` is asked for."""

import pytest

from asrnorm.cli.study_choice import PAPER, change_runs, check_configs, check_data, choose_rows, expand_names
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.recipes import recipe
from asrnorm.studies import get_study, list_studies


def configs(study):
    return {spec.config(0, "paper").recipe for row in study.rows for cell in row.cells.values() for spec in cell.runs}


def test_the_paper_is_its_ten_tables_and_six_figures_each_once():
    names = expand_names(["table3", PAPER, "cifar-erm"])
    assert len(names) == len(set(names)) == 17
    assert names[0] == "table3"
    assert set(names) - {"cifar-erm"} == {name for name in list_studies() if name.startswith(("table", "fig-"))}
    assert {f"table{number}" for number in range(1, 11)} < set(names)


def test_rows_are_chosen_in_any_case_and_studies_without_one_are_left_out():
    table3, table5 = get_study("table3"), get_study("table5")
    assert choose_rows([table3, table5], []) == [table3, table5]
    (chosen,) = choose_rows([table3, table5], ["erm", "RSC + asr*"])
    assert (chosen.name, configs(chosen)) == ("table3", {"pacs.erm_bn", "pacs.rsc_asr"})
    with pytest.raises(UnknownNameError, match=r"row of study 'table3', 'table5', 'ERMM'; did you mean 'ERM'"):
        choose_rows([table3, table5], ["erm", "ERMM"])


def test_a_change_of_every_run_is_noted_unless_it_changes_no_number():
    plain = get_study("table3")
    assert change_runs(plain, {"device": "cpu"}).footnotes == plain.footnotes
    assert change_runs(plain, {}) is plain
    changed = change_runs(plain, {"optim.lr": "0.5"})
    assert changed.footnotes[0] == "Not the study's own setting: every run of ours has optim.lr=0.5."
    assert configs(changed) == configs(plain)


def test_an_option_that_no_registry_knows_is_refused_before_anything_runs():
    check_configs([recipe("digits_mini.erm_bn")])
    with pytest.raises(UnknownNameError, match="unknown option of norm"):
        check_configs([recipe("digits_mini.erm_bn"), recipe("digits_mini.erm_bn", **{"norm.foo": 3})])


def test_missing_weights_are_told_with_a_file_that_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    weights = recipe("pacs.erm_asr").weights
    config = recipe("digits_mini.erm_bn", weights=weights)
    with pytest.raises(InputError, match=r"no such file of weights; try: asrnorm data fetch resnet18, and --set weig"):
        check_data([config])
    (tmp_path / weights).parent.mkdir()
    (tmp_path / weights).touch()
    check_data([config])
