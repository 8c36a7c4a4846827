"""What the other systems of tables 1, 2 and 4 change in the ERM config: as they are printed, and with IN and ASR-Norm.

`docs/methods` says of every value where it comes from. Values that no source gives are chosen on source images alone.
"""

from dataclasses import replace

from asrnorm.core.config import Choice, OptimConfig
from asrnorm.recipes.base import Epochs, Variant
from asrnorm.recipes.erm import CIFAR_EPOCH, pacs

_DIGITS = ("none", "in", "asr")
_RESNET = ("bn", "in", "asr")

# The authors' command passes `--nesterov False`, which their parser read as true until January 2020.
_JIGEN_OPTIM = replace(pacs("bn").optim, lr=0.001, nesterov=True)

RIVALS: dict[str, dict[str, Variant]] = {
    "jigen": {
        "digits": Variant(
            "JiGen with its weights for PACS; those for Digits are not public.", {"jigsaw_weight": 0.7}, norms=_DIGITS
        ),
        "pacs": Variant(
            "JiGen in its released setting, Nesterov momentum included.",
            {"jigsaw_weight": 0.7},
            {"optim": _JIGEN_OPTIM, "augment": "pacs_color"},  # tiles become gray, not images
            norms=_RESNET,
        ),
    },
    "st": {
        # The project's own network and schedule: model=wrn_40_4 steps=78200 augment=cifar.
        "cifar10c": Variant(
            "ST in its released setting: WRN-40-2 for 100 epochs.",
            {"rotation_weight": 0.5},
            {
                "model": Choice(name="wrn_40_2"),
                "steps": 100 * CIFAR_EPOCH,
                "augment": "cifar_zero",
                "adversarial": False,
            },
            norms=_RESNET,
        ),
    },
    # Pairs are made within a batch, so it is twice ERM's, and drawn anew in every epoch.
    "ccsa": {
        "digits": Variant(
            "CCSA with both streams from the source: no image of a target.",
            {"alpha": 0.25, "margin": 1.0, "negatives": 3},
            {"batch_size": 64, "shuffle": True},
            norms=_DIGITS,
        ),
    },
    "dsne": {
        "digits": Variant(
            "d-SNE with both streams from the source: no image of a target.",
            {"alpha": 0.25, "margin": 1.0, "normalize": True},
            {"batch_size": 64, "shuffle": True},
            norms=_DIGITS,
        ),
    },
    # RSC's paper compares with the next three and gives no settings; these are those of ERM.
    "cutout": {
        "pacs": Variant(
            "Cutout of a third of the side; its settings on PACS are not public.", {"length": 74}, norms=_RESNET
        ),
    },
    "dropblock": {
        "pacs": Variant(
            "DropBlock in the last two stages; its settings on PACS are not public.",
            {"drop": 0.1, "block_size": 3, "early_block_size": 5},
            norms=_RESNET,
        ),
    },
    "adversarial_dropout": {
        "pacs": Variant(
            "AdversarialDropout of a tenth of the embedding; its settings on PACS are not public.",
            {"delta": 0.1, "dropout_weight": 1.0},
            norms=_RESNET,
        ),
    },
    # Its scores adapt to the test images with adapt=slow or adapt=online.
    "ttt": {
        "cifar10c": Variant(
            "TTT's training in its released setting: a thin ResNet-26 with a rotation branch, 150 epochs.",
            {"rotation_weight": 1.0},
            {
                "model": Choice(name="resnet26_ttt"),
                "optim": OptimConfig(
                    name="sgd", lr=0.1, weight_decay=5e-4, schedule="step", step_at=75 / 150, step_again=125 / 150
                ),
                "steps": 150 * CIFAR_EPOCH,
                "augment": "cifar_zero",
                "adversarial": False,
            },
            norms=("gn", "in", "asr"),
            norm_options={"gn": {"num_groups": 8}},
        ),
    },
    # Only the algorithm is published; the length of its first phase and its rates are our choice.
    "metareg": {
        "pacs": Variant(
            "MetaReg with ten epochs for its regularizer; give it several sources, as --target NAME does.",
            {"phase_steps": Epochs(10), "lr": 0.01, "inner_steps": 5, "meta_lr": 0.001},
            norms=_RESNET,
        ),
    },
}
