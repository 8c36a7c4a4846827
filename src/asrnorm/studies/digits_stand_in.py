"""The generated stand-in of SYN, apart from the paper's tables: Digits runs scored again with it among the targets."""

from collections.abc import Mapping
from dataclasses import replace

from asrnorm.studies.digits import BN_TEST_BATCHES, OURS, table1, table9
from asrnorm.studies.spec import STUDIES, Cell, Comparison, Evaluation, Measure, Row, RunSpec, Study

# What a suite that has the stand-in calls it, and how a run is scored with it.
NAME = "syn_like"
_OVERRIDES: Mapping[str, object] = {"suite.syn_like": True}
# Runs of other rows, scored in yet another way.
_LEFT_OUT = (f"{OURS}, confined", *(f"RSDA + BN-Test ({size})" for size in BN_TEST_BATCHES))
_MEASURES = {
    "SYN-like": Measure(quantity="accuracy", domains=(NAME,)),
    "SVHN, MNIST-M, USPS": Measure(quantity="accuracy", domains=("svhn", "mnist_m", "usps")),
}


@STUDIES.register("digits-syn-like")
def digits_syn_like() -> Study:
    """Runs of tables 1 and 9 on a generated stand-in for SYN, whose file is hard to get."""
    rows = {row.label: row for study in (table1(), table9()) for row in study.rows if not row.not_run}
    return Study(
        name="digits-syn-like",
        title="Digits, a stand-in for SYN",
        caption="Accuracy on generated digits in place of SYN, and the average over the published sets beside it.",
        columns=tuple(_MEASURES),
        rows=tuple(_score_again(row) for label, row in rows.items() if label not in _LEFT_OUT),
        comparisons=tuple(Comparison(row=OURS, against=other) for other in ("RSDA", "RSDA + IN")),
        footnotes=(
            "The stand-in is rendered from the fonts of matplotlib, as the paper of SYN describes its own. It is not "
            "SYN: its numbers can be compared with each other, not with the paper's.",
            "The rows ERM to ME-ADA are trained on 10,000 images for 10,001 steps, the others on 55,000 images for a "
            "million steps, or 200,000 at the short scale.",
        ),
        suite="digits",
    )


def _score_again(row: Row) -> Row:
    (run,) = row.cells["Avg."].runs
    again: RunSpec = replace(run, evaluation=_with_stand_in(run.evaluation))
    return Row(label=row.label, cells={name: Cell(measure=one, runs=(again,)) for name, one in _MEASURES.items()})


def _with_stand_in(evaluation: Evaluation | None) -> Evaluation:
    if evaluation is None:
        return Evaluation(name=NAME, overrides=_OVERRIDES)
    return Evaluation(name=f"{evaluation.name}-{NAME}", overrides={**evaluation.overrides, **_OVERRIDES})
