"""CIFAR-10-C by severity: the paper's table 2, and the rows that tables 5, 6, 7 and 10 and the figures share."""

from collections.abc import Mapping
from dataclasses import replace

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Evaluation, Measure, Row, RunSpec, Study
from asrnorm.studies.transcript import transcribe

LEVELS = {f"Level {level}": f"*/{level}" for level in range(1, 6)}
COLUMNS = (*LEVELS, "Avg.")
NOTHING = "- - - - - -"
OURS = "ADA + ASR-Norm"
ACCURACY = Measure(quantity="accuracy")
BN_TEST_BATCHES = (16, 64, 256)
# M-ADA's numbers are known from its paper alone; its code for CIFAR-10 is not public.
SMALLER_NETWORK = "Rows copied from M-ADA are of WRN-16-4; ours are all of WRN-40-4."
GENERATED = (
    "The kept runs were scored on CIFAR-10-C as asrnorm data corrupt cifar10c generates it with seed 0: seven of the "
    "19 corruptions equal the published files to the bit, eleven differ from them in their random numbers, and JPEG by "
    "about a grey level."
)
ADA_READING = (
    "ADA's step and distance, which the paper leaves open, were chosen by source images: study cifar-reading, at the "
    "short scale, with ASR-Norm and one seed. All norms take them."
)
BN_TEST = (
    "BN-Test is the run of the BN row, scored with the statistics of test batches that all have one corruption at one "
    "severity; the other rows see one image at a time. 10,000 images are split into even batches, so that 256 stands "
    "for 250 and 64 for 63 or 64."
)


def level_row(
    label: str,
    recipe: str | None,
    line: str = NOTHING,
    *,
    measure: Measure = ACCURACY,
    copied_from: str | None = None,
    notes: Mapping[str, str] | str | None = None,
    overrides: Mapping[str, object] | None = None,
    evaluation: Evaluation | None = None,
    not_run: str | None = None,
) -> Row:
    """Return a row with one run behind its five severities and their average.

    Args:
        label: of the row.
        recipe: its name; `None` where the method is not built here.
        line: the paper's numbers.
        measure: what is shown of each severity.
        copied_from: where the paper has the line from.
        notes: on slips, by column or for the whole line.
        overrides: as `--set`.
        evaluation: how the run is scored again.
        not_run: why there is no recipe.
    """
    runs = () if recipe is None else (RunSpec(recipe=recipe, overrides=overrides or {}, evaluation=evaluation),)
    printed = transcribe(COLUMNS, line, copied_from=copied_from, notes=notes)
    cells = {
        column: Cell(
            measure=replace(measure, domains=(LEVELS[column],) if column in LEVELS else ()),
            runs=runs,
            printed=printed.get(column),
        )
        for column in COLUMNS
        if runs or column in printed
    }
    return Row(label=label, cells=cells, not_run=not_run)


def bn_test_rows(recipe: str = "cifar10c.ada_bn", prefix: str = "ADA + ") -> tuple[Row, ...]:
    """Return BN-Test at several batch sizes: the BN run, scored again with the statistics of the test batch.

    Without the attacks, which no table has of it and which take longer than all the corruptions.
    """
    evaluations = (
        Evaluation(name=f"bn_test-{size}", overrides={"norm": "bn_test", "evaluate_batch": size, "adversarial": False})
        for size in BN_TEST_BATCHES
    )
    return tuple(
        level_row(f"{prefix}BN-Test ({size})", recipe, evaluation=evaluation)
        for size, evaluation in zip(BN_TEST_BATCHES, evaluations, strict=True)
    )


ERM_PRINTED = "87.8±0.1 81.5±0.2 75.5±0.4 68.2±0.6 56.1±0.8 73.8"
ERM_ASR_PRINTED = "89.4±0.2 86.1±0.2 82.9±0.3 78.6±0.6 72.9±1.0 82.0"
M_ADA_PRINTED = "90.5±0.3 86.8±0.4 82.5±0.6 76.4±0.9 65.6±1.2 80.4"
OURS_PRINTED = "91.5±0.2 89.3±0.6 86.9±0.5 83.7±0.7 78.4±0.8 86.0"


@STUDIES.register("table2")
def table2() -> Study:
    """Table 2: CIFAR-10 to CIFAR-10-C by severity, against other methods."""
    return Study(
        name="table2",
        title="CIFAR-10-C",
        caption="Accuracy on 19 corruptions at five severities after training on CIFAR-10.",
        columns=COLUMNS,
        rows=(
            level_row("ERM", "cifar10c.erm_bn", ERM_PRINTED, copied_from="M-ADA"),
            level_row(
                "PGD",
                "cifar10c.pgd_bn",
                "73.1±0.5 69.0±1.1 64.1±1.3 58.0±2.2 48.9±2.8 61.6",
                notes={"Avg.": "the five numbers of the row average to 62.6"},
            ),
            level_row(
                "ST", None, "- - - - - 76.9", copied_from="Hendrycks et al., 2019", not_run="not run: not built here"
            ),
            level_row(
                "TTT",
                None,
                "- - - - - 84.4",
                copied_from="Sun et al., 2020",
                not_run="not run: not built here; it trains on the test images",
            ),
            level_row(
                "ADA", "cifar10c.ada_bn", "88.3±0.6 83.5±2.0 77.6±2.2 70.6±2.3 58.3±2.5 75.7", copied_from="M-ADA"
            ),
            level_row("M-ADA", "cifar10c.m_ada_bn", M_ADA_PRINTED, copied_from="M-ADA"),
            level_row("ME-ADA", "cifar10c.me_ada_bn", "- - - - - 83.3", copied_from="ME-ADA"),
            level_row("ERM + ASR-Norm", "cifar10c.erm_asr", ERM_ASR_PRINTED),
            level_row(OURS, "cifar10c.ada_asr", OURS_PRINTED),
        ),
        comparisons=(
            Comparison(row=OURS, against="ADA", differences=transcribe(COLUMNS, "3.2 5.8 9.3 13.1 20.1 10.3")),
            Comparison(row="ERM + ASR-Norm", against="ERM"),
            Comparison(row=OURS, against="ERM + ASR-Norm"),
        ),
        footnotes=(
            GENERATED,
            ADA_READING + " M-ADA and ME-ADA keep the move of ME-ADA's code.",
            "ADA + ASR-Norm (seed 0) comes out within 0.7 points of the paper's numbers at every level, ADA (seed 0) "
            "within 2.4.",
            "ERM + ASR-Norm comes out above the paper's numbers, by 1.7 at level 1 and 4.5 at level 5 (two seeds), so "
            "that ADA adds 0.9 to it where the paper has 4.0. It is the recipe of ADA + ASR-Norm without ADA; what the "
            "paper's run had less of is not known.",
            "ERM with BN comes out above the copied numbers too, by 1.7 at level 1 and 3.3 at level 5 (two seeds): a "
            "deeper network is the likely reason. ADA then takes 1.6 from BN where the copied numbers gain 1.9: its "
            "step was chosen with ASR-Norm, and with BN it is one seed.",
            SMALLER_NETWORK,
            "The numbers of ST, TTT and ME-ADA are of still other networks and of 15 corruptions; ours are of 19.",
            "The paper's headline of 2.7 above the best earlier method is against ME-ADA (83.3); against TTT (84.4), "
            "which stands in the same table, it is 1.6.",
        ),
        suite="cifar10c",
    )
