"""The paper's figures: which runs each is drawn from."""

from asrnorm.studies.cifar10c import (
    ADA_READING,
    BN_TEST,
    GENERATED,
    OURS,
    SECOND_TRAINING,
    SMALLER_NETWORK,
    bn_test_rows,
    level_row,
)
from asrnorm.studies.cifar10c import COLUMNS as LEVEL_COLUMNS
from asrnorm.studies.cifar10c_norm import TABLE5_ASR, TABLE5_BN, TABLE5_IN
from asrnorm.studies.pacs_single import COLUMNS as SOURCE_COLUMNS
from asrnorm.studies.pacs_single import RSC_ASR_PRINTED, single_source_row
from asrnorm.studies.spec import STUDIES, Cell, Comparison, Measure, Row, RunSpec, Study

# Hendrycks and Dietterich's four groups; each has one of the four extra corruptions.
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
NO_DECAY = {"optim.decay_lambdas": False}
_DECAY = (
    "Weight decay alone pulls a logit from -3 towards 0, that is, a lambda towards .5. The curve that it would give "
    "without any gradient is shown beside the others; only departures from it are due to the loss."
)


@STUDIES.register("fig-levels")
def levels() -> Study:
    """Accuracy against corruption level for BN, IN, BN-Test and ASR-Norm."""
    return Study(
        name="fig-levels",
        title="Accuracy against corruption level",
        caption="Accuracy on CIFAR-10-C by severity after training with ADA and different norms.",
        columns=LEVEL_COLUMNS,
        rows=(
            level_row("ADA + BN", "cifar10c.ada_bn", TABLE5_BN, copied_from="M-ADA"),
            *bn_test_rows(),
            level_row("ADA + IN", "cifar10c.ada_in", TABLE5_IN),
            level_row(OURS, "cifar10c.ada_asr", TABLE5_ASR),
        ),
        figures=("levels",),
        footnotes=(
            GENERATED,
            ADA_READING,
            BN_TEST,
            SECOND_TRAINING,
            SMALLER_NETWORK,
            "The paper's figure prints no numbers; those here are from table 5.",
        ),
        suite="cifar10c",
    )


@STUDIES.register("fig-lambda-cifar")
def lambda_cifar() -> Study:
    """Lambdas over training on CIFAR-10, with and without weight decay on them."""
    return Study(
        name="fig-lambda-cifar",
        title="Lambdas over training, CIFAR-10",
        caption="Weights of the learned statistics, layer by layer, beside the curve that weight decay alone would "
        "give.",
        columns=LEVEL_COLUMNS,
        rows=(
            level_row(OURS, "cifar10c.ada_asr", TABLE5_ASR),
            level_row(f"{OURS}, no decay on lambdas", "cifar10c.ada_asr", overrides=NO_DECAY),
        ),
        comparisons=(Comparison(row=OURS, against=f"{OURS}, no decay on lambdas"),),
        figures=("lambdas",),
        footnotes=(
            _DECAY,
            "The paper shows the first layer, which has 16 channels, and does not mention weight decay.",
            "At the paper's scale 59 and 58 of the 74 lambdas (seeds 0 and 1) end within .1 of .5, where weight decay "
            "alone would bring them. Furthest from it is the last layer's lambda_sigma (.98 and .99). Of the first "
            "layer, lambda_mu ends at .70 and .73 and lambda_sigma at .58 and .63; the paper's text has that "
            "lambda_sigma at almost 1.",
            "Without decay on them, at the short scale (one seed), 68 of the 74 end below .1, near the .05 where they "
            "began. The loss alone lifts two above .25: the first layer's lambda_mu to .90 and the last layer's "
            "lambda_sigma to .98. Accuracy is 84.2 on average; with decay, the same seed has 85.0 and two others "
            "84.4 and 83.8.",
            GENERATED,
            ADA_READING,
        ),
        seeds=1,
        suite="cifar10c",
    )


@STUDIES.register("fig-lambda-pacs")
def lambda_pacs() -> Study:
    """All four lambdas over training on PACS, with and without weight decay on them."""
    label = "RSC + ASR-Norm"
    return Study(
        name="fig-lambda-pacs",
        title="Lambdas over training, PACS",
        caption="Weights of the learned statistics (mu, sigma) and of the learned rescaling (beta, gamma), layer by "
        "layer, beside the curve that weight decay alone would give.",
        columns=SOURCE_COLUMNS,
        rows=(
            single_source_row(label, "pacs.rsc_asr", RSC_ASR_PRINTED),
            single_source_row(f"{label}, no decay on lambdas", "pacs.rsc_asr", overrides=NO_DECAY),
        ),
        comparisons=(Comparison(row=label, against=f"{label}, no decay on lambdas"),),
        figures=("lambdas",),
        footnotes=(_DECAY, "The paper does not say which source its figure shows."),
        seeds=1,
        suite="pacs",
    )


@STUDIES.register("fig-tsne")
def tsne() -> Study:
    """t-SNE of the learned standardization statistics on PACS in the first and last ASR layers, colored by domain."""
    return Study(
        name="fig-tsne",
        title="Learned statistics by domain",
        caption="t-SNE of mu_stan and sigma_stan of every image in the first and last layers with ASR-Norm.",
        columns=SOURCE_COLUMNS,
        rows=(single_source_row("RSC + ASR-Norm", "pacs.rsc_asr", RSC_ASR_PRINTED, analyses=("statistics",)),),
        figures=("tsne",),
        footnotes=(
            "The paper does not say which layer or which source its figure shows.",
            "In a network trained on art paintings, sketches are apart from the rest in all four panels; cartoons lie "
            "between them and the rest, and photographs lie among the paintings.",
        ),
        seeds=1,
        suite="pacs",
    )


@STUDIES.register("fig-corruptions")
def corruptions() -> Study:
    """Accuracy by corruption type and group on CIFAR-10-C."""
    columns = (*GROUPS, *(name for names in GROUPS.values() for name in names))
    return Study(
        name="fig-corruptions",
        title="Accuracy by corruption",
        caption="Accuracy on CIFAR-10-C averaged over five severities, by group and by type of corruption.",
        columns=columns,
        rows=tuple(
            _corruption_row(f"ADA + {label}", f"cifar10c.ada_{norm}", columns)
            for label, norm in (("BN", "bn"), ("IN", "in"), ("ASR-Norm", "asr"))
        ),
        comparisons=(Comparison(row=OURS, against="ADA + BN"), Comparison(row=OURS, against="ADA + IN")),
        figures=("corruptions",),
        footnotes=(
            "The paper prints no numbers in its figure; its text says that ASR-Norm improves over BN for most types, "
            "except for brightness. Here it is above BN for every one except brightness and JPEG, with either seed.",
            "At the short scale, on average over the seeds, brightness is the only exception. IN, run at that scale "
            "alone, is ahead of ASR-Norm for fog and contrast, with either seed.",
            GENERATED,
            ADA_READING,
        ),
        suite="cifar10c",
    )


def _corruption_row(label: str, recipe: str, columns: tuple[str, ...]) -> Row:
    run = (RunSpec(recipe=recipe),)
    patterns = {column: tuple(f"{name}/*" for name in GROUPS.get(column, (column,))) for column in columns}
    return Row(
        label=label,
        cells={
            column: Cell(measure=Measure(quantity="accuracy", domains=patterns[column]), runs=run) for column in columns
        },
    )


@STUDIES.register("fig-samples")
def samples() -> Study:
    """Sample images of the suites PACS, CIFAR-10-C (at level 5) and Digits."""
    return Study(
        name="fig-samples",
        title="Sample images",
        caption="Images from every domain of PACS, CIFAR-10-C at severity 5, and Digits.",
        columns=(),
        rows=(),
        figures=("samples",),
        seeds=0,
    )
