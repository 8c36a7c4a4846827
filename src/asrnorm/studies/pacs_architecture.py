"""Whether the default of `convert` holds for another pretrained network: PACS with timm's EfficientNet-Lite0."""

from asrnorm.studies.pacs_single import COLUMNS, single_source_row
from asrnorm.studies.spec import STUDIES, Comparison, Study

NETWORK = {
    "model": "timm",
    "model.architecture": "tf_efficientnet_lite0",
    "weights": "weights/tf_efficientnet_lite0.safetensors",
}


@STUDIES.register("pacs-architecture")
def pacs_architecture() -> Study:
    """Table 3's ERM rows with another network: BatchNorm, and ASR-Norm in the layers that `layers="auto"` picks."""
    return Study(
        name="pacs-architecture",
        title="PACS, single source, EfficientNet-Lite0",
        caption="Accuracy of an EfficientNet-Lite0, trained like the ResNet-18 of table 3, with the domain of the "
        "column as the only source, averaged over the three other domains.",
        columns=COLUMNS,
        rows=(
            single_source_row("ERM", "pacs.erm_bn", overrides=NETWORK),
            single_source_row("ERM + ASR-Norm", "pacs.erm_asr", overrides={**NETWORK, "layers": "auto"}),
        ),
        comparisons=(Comparison(row="ERM + ASR-Norm", against="ERM"),),
        footnotes=(
            "Nothing was tuned for this network: learning rate, epochs and weight decay are those of the ResNet-18, "
            "and the layers are those that asrnorm.convert picks in any trained network.",
            "The weights are timm's tf_efficientnet_lite0.in1k, from the model.safetensors of that name under timm/ on "
            "the Hugging Face hub; the input is normalized as for the ResNet-18.",
        ),
        seeds=3,
        suite="pacs",
    )
