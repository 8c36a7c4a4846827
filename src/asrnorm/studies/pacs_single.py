"""PACS from one source to the other three domains: the paper's table 3."""

from collections.abc import Mapping

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Measure, Row, RunSpec, Study
from asrnorm.studies.transcript import transcribe

# Paper: the column is the source; the number is the mean over the three other domains.
SOURCES = {"Artpaint": "art_painting", "Cartoon": "cartoon", "Sketch": "sketch", "Photo": "photo"}
COLUMNS = (*SOURCES, "Avg.")
ACCURACY = Measure(quantity="accuracy")
RSC_ASR_PRINTED = "76.7 79.3 61.6 54.6 68.1"
MADE_OF = (
    "The kept runs read photo, art and cartoon images re-encoded as WebP at quality 85 (37 to 39 dB against the "
    "published files), started from ImageNet weights in half precision without running statistics, and were trained in "
    "bfloat16."
)


def single_source_runs(
    recipe: str, overrides: Mapping[str, object] | None = None, analyses: tuple[str, ...] = ()
) -> dict[str, RunSpec]:
    """Return one run per source, by column."""
    return {
        column: RunSpec(recipe=recipe, options={"source": source}, overrides=overrides or {}, analyses=analyses)
        for column, source in SOURCES.items()
    }


def single_source_row(
    label: str,
    recipe: str,
    line: str = "- - - - -",
    *,
    overrides: Mapping[str, object] | None = None,
    analyses: tuple[str, ...] = (),
) -> Row:
    """Return a row with one run per source, followed by the average of the four.

    Args:
        label: of the row.
        recipe: its name.
        line: the paper's numbers.
        overrides: as `--set`, the same for every source.
        analyses: what else is made of each run.
    """
    runs = single_source_runs(recipe, overrides, analyses)
    printed = transcribe(COLUMNS, line)
    cells = {
        column: Cell(
            measure=ACCURACY,
            runs=(runs[column],) if column in runs else tuple(runs.values()),
            printed=printed.get(column),
        )
        for column in COLUMNS
    }
    return Row(label=label, cells=cells)


@STUDIES.register("table3")
def table3() -> Study:
    """Table 3: PACS from one source domain to the other three."""
    return Study(
        name="table3",
        title="PACS, single source",
        caption="Accuracy with the domain of the column as the only source, averaged over the three other domains.",
        columns=COLUMNS,
        rows=(
            single_source_row("ERM", "pacs.erm_bn", "70.9 76.5 53.1 42.2 60.7"),
            single_source_row("RSC", "pacs.rsc_bn", "73.4 75.9 56.2 41.6 61.8"),
            single_source_row("ERM + IN", "pacs.erm_in"),
            single_source_row("ERM + AS", "pacs.erm_as"),
            single_source_row("ERM + AR", "pacs.erm_ar"),
            single_source_row("ERM + ASR-Norm", "pacs.erm_asr"),
            single_source_row("RSC + ASR-Norm", "pacs.rsc_asr", RSC_ASR_PRINTED),
        ),
        comparisons=(
            Comparison(row="RSC + ASR-Norm", against="RSC", differences=transcribe(COLUMNS, "3.3 3.4 5.4 13.0 6.3")),
            *(Comparison(row="ERM + ASR-Norm", against=other) for other in ("ERM", "ERM + IN", "ERM + AS", "ERM + AR")),
        ),
        footnotes=(
            "The paper prints no deviations on PACS and does not say how many runs it made.",
            "The layers (stem and first two stages, 10 of the 20 norms), the learning rate (.01; the paper: .004) and "
            "the version of RSC (the third; the paper does not say) were chosen on source images alone. Study "
            "pacs-reading also shows the readings that were not chosen.",
            "The rows ERM + IN, AS, AR and ASR-Norm are not in the paper. AS is ASR-Norm with the standardization "
            "alone, AR with the rescaling alone; these and IN are in the same layers.",
            "The gain of ASR-Norm over RSC is near the paper's, but the level is not: RSC is 3.2 points lower, RSC + "
            "ASR-Norm 3.6, ERM 1.5. Study pacs-reading tried two versions, two rates and two batch sizes for RSC, and "
            "three rates, five sets of layers, calibration, warm-up and the last epoch for ASR-Norm with ERM, mostly "
            "with one seed. ERM with ASR-Norm in the norms that open a stage, at .004, comes nearest to the paper's "
            "68.1 with 67.5, but source images do not choose it. Choosing epochs by the targets (the oracle rows "
            "there, one seed) brings ERM to 60.3 (the paper: 60.7) and ERM + ASR-Norm to 66.6. Most likely a good part "
            "of the gap comes from this choice, which the paper does not describe. The rest would be a stronger RSC, "
            "which adds 1.1 to ERM in the paper and nothing here.",
            "Trained again at a later commit with other kernels, for the figure of their statistics, the four RSC + "
            "ASR-Norm runs of seed 0 moved by 2.9, .2, .0 and 1.5 points.",
            "For ERM from sketch, five seeds lie between 44.1 and 53.4, so the paper's 53.1 is within their range. The "
            "first seed gives 39.8 at .004 and 44.1 at .01.",
            "On average, IN in the same layers, AS and AR are as good as ASR-Norm: on PACS the gain comes from "
            "standardizing each sample in the early layers, and what the networks learn on top is within one "
            "deviation.",
            MADE_OF,
        ),
        seeds=5,
        suite="pacs",
    )
