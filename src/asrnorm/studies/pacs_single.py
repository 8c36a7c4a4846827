"""PACS from one source to the other three domains: the paper's table 3."""

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Measure, Printed, Row, RunSpec, Study

# Paper: the column is the source; the number is the mean of the three other domains.
SOURCES = {"Artpaint": "art_painting", "Cartoon": "cartoon", "Sketch": "sketch", "Photo": "photo"}
COLUMNS = (*SOURCES, "Avg.")
ACCURACY = Measure(quantity="accuracy")


def single_source_row(label: str, recipe: str, printed: tuple[float, ...] = (), **overrides: object) -> Row:
    """Return a row with one run a source, and their average last.

    Args:
        label: of the row.
        recipe: its name.
        printed: the paper's numbers in the order of `COLUMNS`; none where the paper has no such row.
        **overrides: as `--set`, the same for every source.
    """
    runs = [RunSpec(recipe=recipe, options={"source": source}, overrides=overrides) for source in SOURCES.values()]
    numbers = [Printed(value=value) for value in printed] or [None] * len(COLUMNS)
    behind = [*((run,) for run in runs), tuple(runs)]
    cells = {
        column: Cell(measure=ACCURACY, runs=some, printed=number)
        for column, some, number in zip(COLUMNS, behind, numbers, strict=True)
    }
    return Row(label=label, cells=cells)


@STUDIES.register("table3")
def table3() -> Study:
    """Table 3: PACS from one source domain to the other three."""
    differences = dict(zip(COLUMNS, (3.3, 3.4, 5.4, 13.0, 6.3), strict=True))
    return Study(
        name="table3",
        title="PACS, single source",
        caption="Accuracy with the domain of the column as the only source, averaged over the three other domains.",
        columns=COLUMNS,
        rows=(
            single_source_row("ERM", "pacs.erm_bn", (70.9, 76.5, 53.1, 42.2, 60.7)),
            single_source_row("RSC", "pacs.rsc_bn", (73.4, 75.9, 56.2, 41.6, 61.8)),
            single_source_row("RSC + ASR-Norm", "pacs.rsc_asr", (76.7, 79.3, 61.6, 54.6, 68.1)),
            single_source_row("ERM + ASR-Norm", "pacs.erm_asr"),
        ),
        comparisons=(
            Comparison(
                row="RSC + ASR-Norm",
                against="RSC",
                differences={column: Printed(value=value) for column, value in differences.items()},
            ),
            Comparison(row="ERM + ASR-Norm", against="ERM"),
        ),
        footnotes=(
            "The paper prints no deviations on PACS and does not say how many runs it made.",
            "The row ERM + ASR-Norm is not in the paper.",
        ),
        suite="pacs",
    )
