"""A study small enough to check by hand, with every kind of cell, and made-up runs behind it."""

from dataclasses import replace

from asrnorm.studies import Cell, Comparison, Measure, Printed, Row, RunSpec, Study, collect
from helpers.made_up_run import make_up_runs

SLIP = "it averages to 65.3"
COLUMNS = ("SVHN", "USPS", "Avg.")


def _row(label, recipe, numbers, *, deviation=None, copied_from=None, note=None, not_run=None, group=""):
    patterns = {"SVHN": ("svhn",), "USPS": ("usps",), "Avg.": ()}
    cells = {}
    for column, number in zip(COLUMNS, numbers, strict=True):
        printed = None
        if number is not None:
            slip = note if column == "Avg." else None
            printed = Printed(value=number, deviation=deviation, copied_from=copied_from, note=slip)
        runs = (RunSpec(recipe=recipe),) if recipe else ()
        if runs or printed:
            measure = Measure(quantity="accuracy", domains=patterns[column])
            cells[column] = Cell(measure=measure, runs=runs, printed=printed)
    return Row(label=label, cells=cells, not_run=not_run, group=group)


def small_study(**changes) -> Study:
    """Return rows that are measured, copied, slipped, missing and not run, in two groups."""
    study = Study(
        name="small",
        title="A <small> study",
        caption="Accuracy on 100 % made-up digits & more.",
        columns=COLUMNS,
        rows=(
            _row("ERM", "digits.erm_none", (27.8, 76.9, 49.3), copied_from="M-ADA"),
            _row("CCSA", None, (25.9, None, 49.1), copied_from="M-ADA", not_run="not run: no public code"),
            _row("ADA", "digits.ada_none", (35.5, 77.3, 54.6)),
            _row("RSDA", "digits.rsda_none", (47.4, 83.1, 61.6), deviation=1.2, note=SLIP, group="ours"),
            _row("RSDA + ASR-Norm", "digits.rsda_asr", (52.8, 82.4, 70.1), deviation=3.8, group="ours"),
            _row("RSDA + IN", "digits.rsda_in", (None, None, None), group="ours"),
        ),
        comparisons=(
            Comparison(
                row="RSDA + ASR-Norm",
                against="RSDA",
                printed={"SVHN": Printed(value=0.036), "USPS": Printed(value=0.001, below=True)},
                differences={"SVHN": Printed(value=5.4), "USPS": Printed(value=-0.7)},
            ),
        ),
        footnotes=("A remark on the whole.",),
        seeds=3,
        suite="digits",
    )
    return replace(study, **changes)


def collect_small(runs, *, seeds=(0, 1, 2), **changes):
    """Make up all runs but those of ADA, and collect them."""
    study = small_study(**changes)
    make_up_runs(study, runs, seeds=seeds, skip=lambda spec, seed: "ada_" in spec.recipe)
    return collect(study, runs=runs, scale="smoke", seeds=list(seeds))
