"""Training without the residual terms, which the paper mentions in one sentence and gives no numbers for."""

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Measure, Row, RunSpec, Study

COLUMNS = ("Source", "Unseen")
SETTINGS = {
    "Digits, ERM + ASR-Norm": ("digits.erm_asr", {}),
    "CIFAR-10, ERM + ASR-Norm": ("cifar10c.erm_asr", {}),
    "PACS from photo, RSC + ASR-Norm": ("pacs.rsc_asr", {"source": "photo"}),
}


@STUDIES.register("ablation-residual")
def residual() -> Study:
    """Training with and without the residual terms of the standardization; the paper reports NaN without them."""
    return Study(
        name="ablation-residual",
        title="Without the residual terms",
        caption="Accuracy on the source's test images and on the unseen domains, with and without the residual terms "
        "of the standardization.",
        columns=COLUMNS,
        rows=tuple(_row(label, with_residual) for label in SETTINGS for with_residual in (True, False)),
        comparisons=tuple(Comparison(row=label, against=_without(label)) for label in SETTINGS),
        figures=("residual",),
        footnotes=(
            "The paper says that training without the residual terms becomes unstable and ends in NaN; it gives no "
            "numbers. Here a run whose loss is no longer finite counts as an outcome.",
            "Our deviation has a small constant under its square root, which the paper does not mention; it keeps the "
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
