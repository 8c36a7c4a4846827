"""Readings of what the paper leaves open: rows that are compared by scores on source images, targets only shown."""

from collections.abc import Mapping

from asrnorm.studies.spec import Cell, Evaluation, Measure, Row, RunSpec

CHOOSE_BY = {"source-val": "Source, held out", "shifted-val": "Source, shifted"}
"""The columns that may guide a choice, by the rule of selection they are of."""

SHOWN = "Unseen"
COLUMNS = (*CHOOSE_BY.values(), SHOWN)


def read_run(label: str, recipe: str, overrides: Mapping[str, object], evaluation: Evaluation | None = None) -> Row:
    """Return a row of one run: its scores on source images, and its average over the unseen domains beside them.

    Args:
        label: of the row.
        recipe: its name.
        overrides: as `--set`.
        evaluation: how the run is scored again; one that measures validation scores too.

    Example:
        >>> list(read_run("RSDA", "digits.rsda_none", {}).cells)
        ['Source, held out', 'Source, shifted', 'Unseen']
    """
    runs = (RunSpec(recipe=recipe, overrides=overrides, evaluation=evaluation),)
    measures = {column: Measure(quantity="validation", rule=rule) for rule, column in CHOOSE_BY.items()}
    measures[SHOWN] = Measure(quantity="accuracy")
    return Row(label=label, cells={column: Cell(measure=one, runs=runs) for column, one in measures.items()})
