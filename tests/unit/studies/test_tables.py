"""The studies of the package: every run behind a cell can be made, and the printed numbers fit each other."""

import dataclasses
from typing import get_args

import pytest

import asrnorm
from asrnorm.audit.result import GROUPS
from asrnorm.core.config import Scale, content_hash
from asrnorm.data.corruptions import CORRUPTIONS
from asrnorm.data.suites.cifar10c import STANDARD
from asrnorm.evaluation.attacks import ATTACKS
from asrnorm.methods import create_method
from asrnorm.recipes.erm import PACS_NUM_TRAIN
from asrnorm.studies import ANALYSIS_FILES, archive, collect, get_study, list_studies, plan
from asrnorm.studies.measure import matches
from asrnorm.studies.plan import iterate_specs
from asrnorm.training.assembly import check_config
from helpers.study_case import put_result

PUBLIC = [
    *(f"table{number}" for number in range(1, 11)),
    *(f"fig-{name}" for name in ("corruptions", "lambda-cifar", "lambda-pacs", "levels", "samples", "tsne")),
    "ablation-residual",
    "cifar-best",
    "cifar-calibration",
    "cifar-erm",
    "cifar-network",
    "cifar-reading",
    "cifar-search",
    "cifar-steps",
    "digits-best",
    "digits-protocol",
    "digits-reading",
    "digits-rivals",
    "digits-search",
    "digits-syn-like",
    "pacs-architecture",
    "pacs-best",
    "pacs-lambda",
    "pacs-multi-reading",
    "pacs-reading",
    "pacs-rivals",
    "pacs-search",
    "pacs-size",
    "pacs-stated",
    "table3-chosen",
    "table4-chosen",
    "table8-chosen",
]
FIGURES = {"levels", "lambdas", "tsne", "corruptions", "samples", "complexity", "residual"}
TABLES = [f"table{number}" for number in (1, 2, 3, 4, 5, 6, 9, 10)]
# Mistakes of the paper; each carries a remark that says so.
SLIPS = {
    ("table2", "PGD"),
    ("table4", "AdversarialDropout"),
    ("table5", "ADA + AS"),
    ("table9", "RSDA + AS"),
    ("table10", "ADA + AS"),
}
HALF_A_DIGIT = {"table6": 0.0005}
# Parameters of the rows of table 8, with the two gates per layer that section 4.1 adds on PACS.
BASE = 11_180_103
NUM_PARAMETERS = {
    "BN": BASE,
    "ASR to the first norm layer (C/2, C/16)": 11_187_275,
    "ASR to selected 4 norm layers (C/2, C/16)": 11_796_571,
    "ASR to all norm layers (C/16, C/16)": 11_637_111,
    "ASR to all norm layers (C/8, C/16)": 11_832_951,
    "ASR to all norm layers (C/2, C/16)": 13_007_991,
}
WITHOUT_GATES = (11_187_273, 11_796_561, 11_637_087, 11_832_927, 13_007_967)
DIGITS_PRESENT = {"svhn": 0.5, "mnist_m": 0.8, "usps": 0.9}


@pytest.fixture(params=PUBLIC)
def study(request):
    return get_study(request.param)


def rows_of(name):
    return {row.label: row for row in get_study(name).rows}


def run_of(name, label, column="Avg."):
    (run,) = rows_of(name)[label].cells[column].runs
    return run


def hashes_of(*names):
    return {content_hash(spec.config(2, "paper")) for name in names for spec in iterate_specs(get_study(name))}


def test_all_studies_are_there_in_the_order_of_the_paper():
    assert list(list_studies()) == PUBLIC


@pytest.mark.parametrize("scale", get_args(Scale))
def test_every_run_is_a_valid_config(study, scale):
    checked = set()
    for spec in iterate_specs(study):
        config = spec.config(1, scale)
        assert (config.scale, config.seed, config.recipe) == (scale, 1, spec.recipe)
        scored = spec.scored_config(1, scale)
        if content_hash(scored) in checked:
            continue
        checked.add(content_hash(scored))
        check_config(config)
        check_config(scored)


def test_a_smoke_run_is_small(study):
    for spec in iterate_specs(study):
        config = spec.config(0, "smoke")
        assert (config.steps, config.batch_size) == (6, 8)
        assert config.method.args.get("growth", "volpi") == "volpi"


def test_rows_columns_and_comparisons_fit(study):
    labels = [row.label for row in study.rows]
    assert len(set(labels)) == len(labels)
    for row in study.rows:
        assert set(row.cells) <= set(study.columns)
        assert row.cells
        runs = any(cell.runs for cell in row.cells.values())
        assert runs != bool(row.not_run), "a row is run, or says why it is not"
        assert row.not_run is None or row.not_run.startswith("not run: ")
        assert row.not_run is None or all(cell.printed and cell.printed.copied_from for cell in row.cells.values())
    for pair in study.comparisons:
        assert {pair.row, pair.against} <= set(labels)
        assert (set(pair.printed) | set(pair.differences)) <= set(study.columns)
    assert set(study.figures) <= FIGURES


def test_bn_test_is_scored_and_never_trained(study):
    for spec in iterate_specs(study):
        config = spec.config(0, "paper")
        assert config.norm.name != "bn_test"
        if spec.evaluation is not None and "norm" in spec.evaluation.overrides:
            assert config.norm.name == "bn"
            scored = spec.scored_config(0, "paper")
            name = spec.evaluation.name.removesuffix("-syn_like")
            assert (scored.norm.name, name) == ("bn_test", f"bn_test-{scored.evaluate_batch}")


@pytest.mark.parametrize("name", ["table5", "fig-levels"])
def test_bn_test_on_cifar_comes_at_several_batch_sizes(name):
    sizes = {spec.evaluation.overrides["evaluate_batch"] for spec in iterate_specs(get_study(name)) if spec.evaluation}
    assert sizes == {16, 64, 256}


def test_lambdas_are_trained_with_and_without_weight_decay_on_them():
    for name in ("fig-lambda-cifar", "fig-lambda-pacs"):
        configs = [spec.config(0, "paper") for spec in iterate_specs(get_study(name))]
        assert {config.optim.decay_lambdas for config in configs} == {True, False}
        assert all(config.lambda_every for config in configs)
    assert all(config.norm.args["gated_rescale"] for config in configs), "all four lambdas on PACS"


def test_statistics_are_of_the_runs_of_table_3_chosen():
    specs = list(iterate_specs(get_study("fig-tsne")))
    assert hashes_of("fig-tsne") <= hashes_of("table3-chosen")
    assert all(spec.analyses == ("statistics",) and set(spec.analyses) <= set(ANALYSIS_FILES) for spec in specs)


def test_without_the_residual_a_run_may_diverge():
    for spec in iterate_specs(get_study("ablation-residual")):
        assert spec.may_diverge == (spec.config(0, "paper").norm.args.get("residual") is False)


# The paper's numbers.


def printed_columns(name):
    study = get_study(name)
    return [column for column in study.columns if column not in study.added]


def printed_rows(name):
    study = get_study(name)
    for row in study.rows:
        numbers = {column: cell.printed for column, cell in row.cells.items() if cell.printed is not None}
        if set(numbers) == set(printed_columns(name)):
            yield row.label, numbers


@pytest.mark.parametrize("name", TABLES)
def test_averages_are_those_of_the_row_except_for_the_known_slips(name):
    half = HALF_A_DIGIT.get(name, 0.05)
    rows = list(printed_rows(name))
    assert rows
    for label, numbers in rows:
        *parts, average = (numbers[column] for column in printed_columns(name))
        mean = sum(part.value for part in parts) / len(parts)
        fits = abs(mean - average.value) <= half + 1e-9
        assert fits != ((name, label) in SLIPS), (label, mean, average.value)
        if not fits:
            assert any(number.note for number in numbers.values()), label


@pytest.mark.parametrize(("name", "label"), sorted(SLIPS - {("table4", "AdversarialDropout")}))
def test_the_remark_on_a_slip_has_the_true_average(name, label):
    *parts, average = dict(printed_rows(name))[label].values()
    assert average.note.endswith(f"average to {sum(part.value for part in parts) / len(parts):.1f}")


def test_the_remark_on_adversarial_dropout_has_the_number_that_fits():
    numbers = dict(printed_rows("table4"))["AdversarialDropout"]
    others = sum(numbers[column].value for column in ("Artpaint", "Cartoon", "Sketch"))
    assert "96.1 does" in numbers["Photo"].note
    assert (others + 96.1) / 4 == pytest.approx(numbers["Avg."].value, abs=0.0501)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table6"])
def test_printed_differences_are_those_of_the_rows(name):
    rows = dict(printed_rows(name))
    pairs = [pair for pair in get_study(name).comparisons if pair.differences]
    assert len(pairs) == 1
    for column in printed_columns(name):
        difference = rows[pairs[0].row][column].value - rows[pairs[0].against][column].value
        assert difference == pytest.approx(pairs[0].differences[column].value, abs=1e-9), column


def test_tables_that_repeat_each_other_agree():
    """Table 9 repeats rows of table 1, tables 5 and 10 rows of table 2."""

    def values(name, label):
        return [rows_of(name)[label].cells[column].printed.value for column in printed_columns(name)]

    for label in ("RSDA", "RSDA + ASR-Norm"):
        assert values("table1", label) == values("table9", label)
    assert values("table2", "ADA") == values("table5", "ADA + BN") == values("fig-levels", "ADA + BN")
    for name in ("table5", "table10", "fig-levels", "fig-lambda-cifar"):
        assert values(name, "ADA + ASR-Norm") == values("table2", "ADA + ASR-Norm")
    for label in ("ADA + SN (IN, LN)", "ADA + AR", "ADA + AS"):
        assert values("table5", label) == values("table10", label)
    for label in ("ERM + ASR-Norm", "M-ADA"):
        assert values("table2", label) == values("table10", label)
    assert values("table2", "ERM") == values("table10", "ERM + BN") == values("cifar-erm", "ERM + BN")
    assert values("table2", "ERM + ASR-Norm") == values("cifar-erm", "ERM + ASR-Norm")
    assert values("table5", "ADA + IN") == values("fig-levels", "ADA + IN")
    for name in ("fig-tsne", "fig-lambda-pacs"):
        assert values("table3", "RSC + ASR-Norm") == values(name, "RSC + ASR-Norm")
    *_, last = rows_of("table8").values()
    assert last.cells["Avg."].printed.value == values("table3", "RSC + ASR-Norm")[-1]
    assert rows_of("table8")["BN"].cells["Avg."].printed.value == values("table3", "RSC")[-1]


def test_the_shared_deviations_of_table_10_are_marked():
    rows = rows_of("table10")
    ours, sn = rows["ADA + ASR-Norm"].cells, rows["ADA + SN (IN, LN)"].cells
    levels = [column for column in ours if column.startswith("Level")]
    assert [ours[c].printed.deviation for c in levels] == [sn[c].printed.deviation for c in levels]
    assert all("digit for digit" in sn[column].printed.note for column in levels)


def test_p_values_against_the_method_are_marked():
    rows = dict(printed_rows("table9"))
    for pair in get_study("table9").comparisons:
        ours, theirs = rows[pair.row], rows[pair.against]
        lower = {column for column in pair.printed if ours[column].value < theirs[column].value}
        assert {column for column, printed in pair.printed.items() if printed.note} == lower
        assert lower


def test_copied_rows_name_their_source():
    def sources(name):
        printed = {label: row.cells["Avg."].printed for label, row in rows_of(name).items()}
        return {label: number.copied_from for label, number in printed.items() if number}

    assert sources("table1") == {
        **dict.fromkeys(("ERM", "CCSA", "d-SNE", "JiGen", "ADA", "M-ADA"), "M-ADA"),
        "ME-ADA": "ME-ADA",
        "RSDA": "RSDA",
        "RSDA + ASR-Norm": None,
    }
    assert {label for label, source in sources("table2").items() if source is None} == {
        *("PGD", "ERM + ASR-Norm", "ADA + ASR-Norm")
    }
    assert {label for label, source in sources("table4").items() if source is None} == {"RSC + ASR-Norm"}


# PACS.


@pytest.mark.parametrize("name", ["table3", "table4", "table8"])
def test_five_seeds_are_the_default_on_pacs(name):
    assert get_study(name).seeds == 5


def test_rows_that_are_not_in_the_paper_have_no_number_of_it():
    rows = [rows_of("table3")[label] for label in ("ERM + IN", "ERM + AS", "ERM + AR", "ERM + ASR-Norm")]
    for row in (*rows, rows_of("table4")["ERM + ASR-Norm"]):
        assert all(cell.printed is None and cell.runs for cell in row.cells.values())


@pytest.mark.parametrize("name", ["table3", "table4", "table8"])
def test_what_the_paper_states_about_pacs_is_taken_as_stated(name):
    rows = {label: row for label, row in rows_of(name).items() if "JiGen" not in label}  # has the rate of its program
    configs = [spec.config(0, "paper") for row in rows.values() for cell in row.cells.values() for spec in cell.runs]
    assert {(config.optim.lr, config.selection) for config in configs} == {(0.004, "last")}
    if name != "table8":  # which names its layers itself
        assert {config.layers for config in configs if config.norm.name == "asr"} == {"resnet-12"}


@pytest.mark.parametrize("name", ["table3", "table4", "table8"])
def test_the_chosen_form_of_a_table_has_its_rows_and_its_numbers_of_the_paper(name):
    rows, chosen = rows_of(name), rows_of(f"{name}-chosen")
    assert list(chosen) == [label for label in rows if label in chosen]
    for label, row in chosen.items():
        assert [cell.printed for cell in row.cells.values()] == [cell.printed for cell in rows[label].cells.values()]
        configs = [spec.config(0, "paper") for cell in row.cells.values() for spec in cell.runs]
        assert {(config.optim.lr, config.selection) for config in configs} == {(0.01, "source-val")}


def test_epochs_of_rsc_s_own_batches_are_passes_through_the_set():
    rows = rows_of("pacs-stated")
    epochs = {"RSC, 30 epochs of 64": 30, "RSC + ASR-Norm, 30 epochs of 64": 30, "RSC, lr 0.01, 20 epochs of 64": 20}
    for label, count in epochs.items():
        for spec in rows[label].cells["Avg."].runs:
            config = spec.config(0, "paper")
            epoch = PACS_NUM_TRAIN[config.suite.args["source"]] // 64
            assert (config.batch_size, config.steps, config.method.args["interval"]) == (64, count * epoch, 10 * epoch)
            method = create_method("rsc", **config.method.args)
            assert [round(method.share(10 * epoch * part), 1) for part in range(count // 10)] == [0.3, 0.5, 0.7][
                : count // 10
            ]


def test_freed_lambdas_are_the_only_change_to_the_row_of_table_3():
    base = rows_of("table3")["ERM + ASR-Norm"].cells["Photo"].runs[0].config(0, "paper")
    for label, factor in (("ERM + ASR-Norm", 1), ("ERM + ASR-Norm, lambdas x100", 100)):
        freed = rows_of("pacs-lambda")[label].cells["Photo"].runs[0].config(0, "paper")
        optim = dataclasses.replace(base.optim, lambda_lr=factor, decay_lambdas=factor == 1)
        assert freed == dataclasses.replace(base, optim=optim)


def test_what_was_found_on_the_targets_is_said_so():
    found = {(name, row.label) for name in list_studies() for row in get_study(name).rows if row.found_on_targets}
    confined = "RSDA + ASR-Norm, confined"
    combined = [row for row in get_study("pacs-best").rows if row.group != "The usual augmentation alone"]
    assert found == {
        *(("pacs-stated", f"{method} + ASR-Norm, stages") for method in ("ERM", "RSC")),
        *((table, confined) for table in ("table1", "table9", "digits-reading")),
        *(("pacs-best", row.label) for row in combined),
    }


def test_table_3_has_runs_of_the_study_with_more_rows():
    assert hashes_of("table3") < hashes_of("pacs-stated")


@pytest.mark.parametrize(("name", "layers"), [("table3", "resnet-12"), ("table3-chosen", "early")])
def test_the_parts_of_asr_are_in_the_same_layers(name, layers):
    rows = rows_of(name)
    configs = [rows[f"ERM + {n}"].cells["Photo"].runs[0].config(0, "paper") for n in ("IN", "AS", "AR", "ASR-Norm")]
    assert {config.layers for config in configs} == {layers}
    assert [config.norm.name for config in configs] == ["in", "as", "ar", "asr"]
    assert len({str((config.optim, config.steps, config.batch_size, config.selection)) for config in configs}) == 1


@pytest.mark.parametrize("name", ["table3", "table4"])
def test_asr_with_erm_is_compared_with_erm(name):
    assert ("ERM + ASR-Norm", "ERM") in {(pair.row, pair.against) for pair in get_study(name).comparisons}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    "row", [row for name in ("table8", "table8-chosen") for row in get_study(name).rows], ids=lambda row: row.label
)
def test_rows_of_table_8_have_the_printed_number_of_parameters(row):
    config = row.cells["# Params"].runs[0].config(0, "paper")
    model = asrnorm.create_model(config.model.name, num_classes=7)
    assert count(model) == BASE == row.cells["Params ↑"].measure.baseline
    if config.norm.name != "bn":
        assert config.norm.args["gated_rescale"]
        asrnorm.convert(model, config.norm.name, layers=config.layers, **config.norm.args)
    assert count(model) == NUM_PARAMETERS[row.label]
    assert round(count(model) / 1e6, 2) == row.cells["# Params"].printed.value
    percent = 100 * (count(model) - BASE) / BASE
    printed = row.cells["Params ↑"].printed
    assert (round(percent, 1) == printed.value) != bool(printed.note)


def test_the_footnote_of_table_8_has_the_counts_without_gates():
    note = next(note for note in get_study("table8").footnotes if "two gates" in note)
    gates = (1, 5, 12, 12, 12)
    with_gates = list(NUM_PARAMETERS.values())[1:]
    assert [total - 2 * layers for total, layers in zip(with_gates, gates, strict=True)] == list(WITHOUT_GATES)
    assert all(f"{number:,}" in note for number in WITHOUT_GATES)


# Corruptions and attacks of CIFAR-10-C.


def test_groups_are_the_19_corruptions_each_once():
    cells = get_study("fig-corruptions").rows[0].cells
    columns = get_study("fig-corruptions").columns
    groups = {column: [name.removesuffix("/*") for name in cells[column].measure.domains] for column in columns[:4]}
    names = [name for group in groups.values() for name in group]
    assert sorted(names) == list(CORRUPTIONS.names())
    assert list(columns[4:]) == names
    assert {name: set(group) for name, group in GROUPS.items()} == {name: set(group) for name, group in groups.items()}


@pytest.mark.parametrize(
    "name",
    ["table2", "table5", "table6", "table10", "cifar-erm", "cifar-calibration", "fig-levels", "fig-lambda-cifar"],
)
def test_every_table_of_cifar_10_c_has_the_15_types_of_the_benchmark_beside_the_19(name):
    study = get_study(name)
    cells = next(row.cells for row in study.rows if not row.not_run)
    types = {corruption for corruption in CORRUPTIONS.names() if matches(cells["15 types"].measure, f"{corruption}/2")}
    assert types == set(STANDARD)
    assert study.added[0] == "15 types"
    assert not {"15 types", "mCE"} & {column for pair in study.comparisons for column in pair.printed}


def test_the_corruption_error_is_what_accuracy_leaves_and_is_not_compared(tmp_path):
    study = get_study("table2")
    scores = {"fog/1": 0.9, "snow/5": 0.5, "saturate/1": 0.1}
    for label in ("ERM", "ERM + ASR-Norm"):
        for seed in range(3):
            put_result(tmp_path, run_of("table2", label), seed, scores)
    found = collect(study, runs=tmp_path)
    assert found.cells["ERM", "15 types"].mean == pytest.approx(70)
    assert found.cells["ERM", "mCE"].mean == pytest.approx(30)
    assert found.cells["ERM", "Avg."].mean == pytest.approx(50)
    assert {test.column for test in found.tests} == {"Avg.", "Level 1", "Level 5"}


def test_columns_take_their_own_corruptions_and_no_others():
    cells = get_study("fig-corruptions").rows[0].cells
    assert matches(cells["blur"].measure, "gaussian_blur/3")
    assert not matches(cells["blur"].measure, "gaussian_noise/3")
    assert [name for name in CORRUPTIONS.names() if matches(cells["fog"].measure, f"{name}/1")] == ["fog"]


def test_attacks_are_those_of_the_evaluation():
    cells = get_study("table7").rows[0].cells.values()
    named = {cell.measure.attack for cell in cells if cell.measure.quantity == "adversarial"}
    assert named == {attack.name for attack in ATTACKS}


# The stand-in of SYN, in a study of its own.


def test_the_stand_in_has_the_runs_of_both_tables_and_no_other():
    assert hashes_of("digits-syn-like") == hashes_of("table1", "table9")


def test_what_the_stand_in_leaves_out_is_another_evaluation_of_a_run_that_it_has():
    rows = {label: row for name in ("table1", "table9") for label, row in rows_of(name).items() if not row.not_run}
    left_out = set(rows) - set(rows_of("digits-syn-like"))
    assert set(rows_of("digits-syn-like")) < set(rows)
    assert left_out == {
        "RSDA + ASR-Norm, confined",
        *(f"RSDA + BN-Test ({size})" for size in (16, 64, 256)),
    }
    assert all(rows[label].cells["Avg."].runs[0].evaluation for label in left_out)


def test_a_run_is_scored_as_in_its_table_except_for_the_stand_in():
    for label, table in (("M-ADA", "table1"), ("RSDA + BN-Test", "table9"), ("RSDA + ASR-Norm", "table9")):
        usual = run_of(table, label).scored_config(2, "paper")
        scored = run_of("digits-syn-like", label, "SYN-like").scored_config(2, "paper")
        assert scored.suite.args == {**usual.suite.args, "syn_like": True}
        assert (scored.norm, scored.evaluate_batch) == (usual.norm, usual.evaluate_batch)


def test_the_average_beside_the_stand_in_leaves_it_out(tmp_path):
    run = run_of("digits-syn-like", "RSDA", "SYN-like")
    put_result(tmp_path, run, 0, {**DIGITS_PRESENT, "syn_like": 0.1}, missing=["syn"])
    cells = collect(get_study("digits-syn-like"), runs=tmp_path, seeds=[0]).cells
    assert cells["RSDA", "SYN-like"].mean == pytest.approx(10)
    assert cells["RSDA", "SVHN, MNIST-M, USPS"].mean == pytest.approx(100 * (0.5 + 0.8 + 0.9) / 3)
    assert all(cell.printed is None for row in get_study("digits-syn-like").rows for cell in row.cells.values())


def test_a_run_kept_without_the_stand_in_counts_for_the_paper_s_table(tmp_path):
    table = get_study("table1")
    put_result(tmp_path / "runs", run_of("table1", "RSDA"), 0, DIGITS_PRESENT, missing=["syn"])
    archive(table, runs=tmp_path / "runs", kept=tmp_path / "kept", scale="paper", seeds=[0])
    planned = plan(table, seeds=[0], scale="paper", runs=tmp_path / "gone", kept=tmp_path / "kept")
    assert [task.spec.recipe for task in planned.tasks if task.state == "kept"] == ["digits.rsda_none"]
