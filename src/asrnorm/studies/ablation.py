"""What the paper says in a sentence and shows no numbers for: training without the residual terms."""

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Measure, Row, RunSpec, Study

COLUMNS = ("Source", "Unseen")
SETTINGS = {
    "Digits, ERM + ASR-Norm": ("digits.erm_asr", {}),
    "CIFAR-10, ERM + ASR-Norm": ("cifar10c.erm_asr", {}),
    "PACS from photo, RSC + ASR-Norm": ("pacs.rsc_asr", {"source": "photo"}),
}


@STUDIES.register("ablation-residual")
def residual() -> Study:
    """Training with and without the residual terms of the standardization; the paper: NaN without."""
    return Study(
        name="ablation-residual",
        title="Without the residual terms",
        caption="Accuracy on the source's test images and on the unseen domains with the residual terms of the "
        "standardization and without them.",
        columns=COLUMNS,
        rows=tuple(_row(label, with_residual) for label in SETTINGS for with_residual in (True, False)),
        comparisons=tuple(Comparison(row=label, against=_without(label)) for label in SETTINGS),
        figures=("residual",),
        footnotes=(
            "The paper: without the residual terms training becomes unstable and ends in NaN. It gives no numbers. A "
            "run whose loss is no longer finite counts as an outcome here.",
            "Here the deviation has a small number under its root, which the paper does not mention; it keeps "
            "gradients finite.",
        ),
        seeds=3,
    )


def _row(label: str, with_residual: bool) -> Row:
    recipe, options = SETTINGS[label]
    run = (
        RunSpec(recipe=recipe, options=options)
        if with_residual
        else RunSpec(recipe=recipe, options=options, overrides={"norm.residual": False}, may_diverge=True)
    )
    cells = {
        "Source": Cell(measure=Measure(quantity="accuracy", on_source=True), runs=(run,)),
        "Unseen": Cell(measure=Measure(quantity="accuracy"), runs=(run,)),
    }
    return Row(label=label if with_residual else _without(label), cells=cells)


def _without(label: str) -> str:
    return f"{label}, no residual"
