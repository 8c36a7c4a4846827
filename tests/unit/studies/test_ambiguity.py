"""Studies of what the paper leaves open: each row changes what it names, and source images alone may choose."""

import dataclasses

import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import collect, get_study
from helpers.study_case import put_result

RULES = {"Source, held out": "source-val", "Source, shifted": "shifted-val"}
PACS = ["pacs-reading", "pacs-multi-reading"]
OURS = "RSDA + ASR-Norm"
METHODS = ("ERM", "M-ADA", "ME-ADA")


def rows_of(name):
    return {row.label: row for row in get_study(name).rows}


def config_of(row, scale="paper"):
    (run,) = list(row.cells.values())[-1].runs
    return run.config(0, scale)


def run_hashes(row):
    return {content_hash(run.config(0, "paper")) for run in list(row.cells.values())[-1].runs}


@pytest.mark.parametrize("name", ["digits-reading", "cifar-reading", *PACS])
def test_what_may_choose_comes_first_and_is_of_the_source(name):
    study = get_study(name)
    assert study.columns[:2] == tuple(RULES)
    assert study.shown_only == study.columns[2:]
    for row in study.rows:
        assert tuple(row.cells) == study.columns
        measures = {column: cell.measure for column, cell in row.cells.items()}
        assert {column: measures[column].rule for column in RULES} == RULES
        assert [measures[column].quantity for column in RULES] == ["validation", "validation"]
        assert {measures[column].quantity for column in study.shown_only} == {"accuracy"}
        assert len(row.cells["Unseen"].runs) == (4 if name in PACS else 1)


@pytest.mark.parametrize("name", PACS)
def test_rows_on_pacs_are_different_runs(name):
    rows = get_study(name).rows
    assert len({str(row.cells["Photo"].runs[0].config(0, "paper")) for row in rows}) == len(rows)


def test_validation_is_averaged_over_the_sources(tmp_path):
    study = get_study("pacs-reading")
    row = study.rows[0]
    for number, spec in enumerate(row.cells["Unseen"].runs):
        put_result(tmp_path, spec, 0, {"sketch": 0.5}, validation={"source-val": 0.1 * number})
    found = collect(study, runs=tmp_path, seeds=[0])
    assert abs(found.cells[row.label, "Source, held out"].mean - 15) < 1e-9
    assert (row.label, "Source, shifted") not in found.cells


def test_the_runs_of_table_4_are_among_its_ambiguity_study():
    tried = set().union(*map(run_hashes, get_study("pacs-multi-reading").rows))
    printed = rows_of("table4-chosen")
    for label in ("ERM", "RSC", "RSC + ASR-Norm"):
        assert len(run_hashes(printed[label])) == 4
        assert run_hashes(printed[label]) <= tried


def test_rows_on_digits_are_different_runs_and_the_first_three_those_of_the_tables():
    rows = get_study("digits-reading").rows
    hashes = {row.label: content_hash(config_of(row)) for row in rows}
    assert hashes.pop(f"{OURS}, confined") == hashes[OURS]  # scored in another way
    assert len(set(hashes.values())) == len(hashes)
    for row in rows[:3]:
        assert run_hashes(rows_of("table9")[row.label]) == run_hashes(row)


@pytest.mark.parametrize("number", range(3, 9))
def test_a_row_on_digits_changes_what_it_names_and_nothing_else(number):
    rows = get_study("digits-reading").rows
    fields = rows[number].cells["Unseen"].runs[0].overrides
    plain, changed = config_of(rows[2]), config_of(rows[number])
    norm = {name.removeprefix("norm."): value for name, value in fields.items() if name.startswith("norm.")}
    optim = {name.removeprefix("optim."): value for name, value in fields.items() if name.startswith("optim.")}
    assert len(norm) + len(optim) == len(fields) > 0
    assert changed.norm.args == {**plain.norm.args, **norm}
    assert {name: getattr(changed.optim, name) for name in optim} == optim
    same = ("suite", "model", "method", "steps", "batch_size", "precision", "selection")
    assert [getattr(changed, name) for name in same] == [getattr(plain, name) for name in same]


@pytest.mark.parametrize(
    ("label", "start"), [("start with biases of zero", "zero_bias"), ("start as in TensorFlow", "xavier")]
)
def test_another_start_of_the_networks_is_the_only_change(label, start):
    rows = rows_of("digits-reading")
    changed = config_of(rows[f"{OURS}, networks {label}"])
    assert changed.model.args == {"norm_init": start}
    assert dataclasses.replace(changed, model=config_of(rows[OURS]).model) == config_of(rows[OURS])


@pytest.mark.parametrize("scale", ["paper", "short"])
def test_the_last_row_on_digits_scores_the_source_often_enough_to_choose(scale):
    config = config_of(get_study("digits-reading").rows[-1], scale)
    assert config.selection == "shifted-val"
    assert config.steps % config.evaluate_every == 0
    assert config.steps // config.evaluate_every >= 10


def test_the_confined_row_is_that_of_the_tables():
    (here,), (there,) = (
        rows_of(name)[f"{OURS}, confined"].cells[column].runs
        for name, column in (("digits-reading", "Unseen"), ("table9", "Avg."))
    )
    assert here == there
    assert here.scored_config(0, "paper").confine == 2_000


def test_scores_on_the_source_are_read_from_the_results(tmp_path):
    study = get_study("digits-reading")
    row = study.rows[0]
    (run,) = row.cells["Unseen"].runs
    put_result(tmp_path, run, 0, {"svhn": 0.4, "usps": 0.8}, validation={"source-val": 0.99, "shifted-val": 0.97})
    cells = collect(study, runs=tmp_path, seeds=[0]).cells
    assert [cells[row.label, column].mean for column in study.columns] == pytest.approx([99, 97, 60])


# What the programs of M-ADA and ME-ADA do differently.


@pytest.mark.parametrize("method", METHODS)
def test_the_first_row_of_a_method_has_the_run_and_the_numbers_of_table_1(method):
    rows, there = rows_of("digits-protocol"), rows_of("table1")[method]
    assert run_hashes(rows[method]) == run_hashes(there)
    for row in rows.values():
        if row.label.split(",")[0] == method:
            assert [cell.printed for cell in row.cells.values()] == [cell.printed for cell in there.cells.values()]


@pytest.mark.parametrize("method", METHODS)
def test_another_initialization_changes_the_network_alone(method):
    rows = rows_of("digits-protocol")
    plain, changed = config_of(rows[method]), config_of(rows[f"{method}, PyTorch's initialization"])
    assert changed.model.args == {"init": "torch"}
    assert dataclasses.replace(changed, model=plain.model) == plain


def test_the_oracle_row_is_the_same_training_scored_every_100_steps():
    rows = rows_of("digits-protocol")
    last = config_of(rows["ME-ADA, PyTorch's initialization"])
    oracle = config_of(rows["ME-ADA, PyTorch's initialization, oracle"])
    assert (oracle.selection, oracle.evaluate_every) == ("oracle", 100)
    assert dataclasses.replace(oracle, selection=last.selection, evaluate_every=last.evaluate_every) == last


def test_the_shuffled_row_takes_images_in_another_order_alone():
    rows = rows_of("digits-protocol")
    ordered = config_of(rows["ERM, PyTorch's initialization"])
    shuffled = config_of(rows["ERM, PyTorch's initialization, shuffled"])
    assert (ordered.shuffle, shuffled.shuffle) == (False, True)
    assert dataclasses.replace(shuffled, shuffle=False) == ordered
