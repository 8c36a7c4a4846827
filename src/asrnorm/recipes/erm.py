"""The ERM config of every suite, whole; the other methods change what `methods.yaml` lists."""

from typing import Any

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.recipes.base import NORMS, Names, SuiteRecipes, join_names

# CIFAR-10: 50,000 images in batches of 128, the last one smaller: what the paper's epochs are. Here that last one is
# left out, so that 390 steps go through the set.
CIFAR_EPOCH = 391
# PACS: images in the published train lists.
PACS_NUM_TRAIN = {"art_painting": 1_840, "cartoon": 2_107, "photo": 1_499, "sketch": 3_531}
PACS_EPOCHS = 30
PACS_BATCH = 128


def digits(norm: str) -> RunConfig:
    """ERM on 10,000 MNIST images, as in the row of table 1."""
    return RunConfig(
        recipe=f"digits.erm_{norm}",
        # Paper: says MNIST; its ERM row is M-ADA's, trained on the first 10,000. RSDA's own ERM is
        # suite.subset=rsda steps=40001.
        suite=Choice(name="digits", args={"subset": "ada"}),
        model=Choice(name="digits_convnet"),
        norm=Choice(name=norm),
        method=Choice(name="erm"),
        optim=OptimConfig(name="adam", lr=1e-4),
        steps=10_001,
        batch_size=32,
        precision="tf32",  # Paper: not given; a third faster on current GPUs
        shuffle=False,  # as Volpi's programs for ADA and RSDA: batches in the order of the set, over and over
        # Paper: BN-Test's batch on Digits is not given, only that it is large.
        evaluate_batch=500,
        checkpoint_every=1_000,
        log_every=100,
        lambda_every=500,
    )


def digits_mini(norm: str) -> RunConfig:
    """ERM on 4,000 embedded MNIST images, less than a minute on a CPU."""
    # All sizes are our choice, for two CPU cores: three eighths of the ConvNet's channels, a learning rate ten times
    # the paper's, 800 steps. `paper` is the size of the demo.
    return RunConfig(
        recipe=f"digits_mini.erm_{norm}",
        suite=Choice(name="digits_mini"),
        model=Choice(name="digits_convnet", args={"channels": [24, 48], "hidden": 192}),
        norm=Choice(name=norm),
        method=Choice(name="erm"),
        optim=OptimConfig(name="adam", lr=1e-3),
        steps=800,
        batch_size=32,
        shuffle=False,
        checkpoint_every=100,
        log_every=20,
        lambda_every=100,
    )


def cifar10c(norm: str) -> RunConfig:
    """ERM: WRN-40-4 for 200 epochs."""
    return RunConfig(
        recipe=f"cifar10c.erm_{norm}",
        suite=Choice(name="cifar10c", args={"corruptions": "all"}),
        model=Choice(name="wrn_40_4"),
        norm=Choice(name=norm),
        method=Choice(name="erm"),
        # Paper: weight decay is not given; 5e-4 on everything, lambdas too, is that of the Wide ResNet code it follows.
        # optim.decay_lambdas=false keeps it off the lambdas, which it alone would pull from .05 to .5.
        optim=OptimConfig(
            name="sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, decay_lambdas=True, schedule="cosine"
        ),
        steps=200 * CIFAR_EPOCH,
        batch_size=128,
        precision="bfloat16",  # Paper: not given
        augment="cifar",
        evaluate_batch=16 if norm == "bn_test" else 500,  # Paper: BN-Test is reported at a test batch of 16
        adversarial=norm in ("bn", "in", "asr"),  # the norms of table 7
        checkpoint_every=20 * CIFAR_EPOCH,
        log_every=CIFAR_EPOCH,
        lambda_every=CIFAR_EPOCH,
    )


def pacs(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ERM: a pretrained ResNet-18 for 30 epochs."""
    if source is None and target is None:
        source = "photo"
    epoch = pacs_steps_per_epoch(source, target)
    domains = {"source": ",".join(_split(source)), "target": ",".join(_split(target))}
    # Paper: section 4.1 gates what is learned on top of the pretrained gain and bias.
    norm_args: dict[str, Any] = {"gated_rescale": True} if norm in ("ar", "asr") else {}
    if norm == "dson":
        norm_args = {"num_domains": len(_pacs_sources(source, target))}
    return RunConfig(
        recipe=f"pacs.erm_{norm}",
        suite=Choice(name="pacs", args={side: names for side, names in domains.items() if names}),
        model=Choice(name="resnet18"),
        norm=Choice(name=norm, args=norm_args),
        method=Choice(name="erm"),
        # Paper: "the BN in the ResNet-18 model is substituted", at a rate of .004, with RSC in a version that is not
        # named. In all 20 layers at that rate it ruins the pretrained network; its parameter table fits 12. Layers,
        # rate and version are chosen by source images alone (study pacs-reading): the stem and the first two stages,
        # .01, the third; tables 3, 4 and 8 set rate and layers as the paper has them. Momentum and weight decay are not
        # given; they are those of RSC's code, without Nesterov.
        optim=OptimConfig(
            name="sgd", lr=0.01, momentum=0.9, weight_decay=5e-4, schedule="step", step_at=0.8, step_factor=0.1
        ),
        # Norms that start near BN go everywhere, as in their own papers; the others into the same layers as ASR-Norm.
        layers="all" if norm in ("bin", "bn", "bn_test", "dson", "sn") else "early",
        steps=PACS_EPOCHS * epoch,
        batch_size=PACS_BATCH,
        precision="bfloat16",  # Paper: not given
        weights="weights/resnet18_imagenet_backbone_fp16.safetensors",
        augment="pacs",
        # Paper: not given; RSC's authors report the epoch that is best on the source's validation images.
        selection="source-val",
        evaluate_every=epoch,
        evaluate_batch=128,
        checkpoint_every=PACS_EPOCHS // 2 * epoch,  # a run takes seconds on a GPU, a checkpoint a third of a second
        log_every=epoch,
        lambda_every=epoch,
    )


def folder(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ERM: ResNet-18 for 3,000 steps on your own images."""
    # Defaults that need no download and assume no image size; all values are our choice.
    domains = {"source": join_names(source), "target": join_names(target)}
    return RunConfig(
        recipe=f"folder.erm_{norm}",
        suite=Choice(name="folder", args={side: names for side, names in domains.items() if names}),
        # Without pretrained weights, since none come with the package. With weights=weights/resnet18-f37072fd.pth a few
        # hundred steps are enough.
        model=Choice(name="resnet18"),
        norm=Choice(name=norm),
        method=Choice(name="erm"),
        # Low enough to fine-tune, high enough to train from scratch.
        optim=OptimConfig(name="sgd", lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, schedule="cosine"),
        steps=3_000,
        batch_size=32,
        augment="pacs",  # crop, flip and color; use augment=cifar if color tells the classes apart
        selection="source-val",
        evaluate_every=300,
        evaluate_batch=64,
        checkpoint_every=300,
        log_every=20,
        lambda_every=100,
    )


def pacs_steps_per_epoch(source: Names = None, target: Names = None, batch_size: int = PACS_BATCH) -> int:
    """Return the number of full batches in the training images: of the source, or of all domains but the target.

    Example:
        >>> pacs_steps_per_epoch("sketch"), pacs_steps_per_epoch(target="sketch")
        (27, 42)
    """
    for name in (*_split(source), *_split(target)):
        if name not in PACS_NUM_TRAIN:
            raise UnknownNameError(describe_unknown("domain of suite 'pacs',", name, PACS_NUM_TRAIN))
    return sum(PACS_NUM_TRAIN[name] for name in _pacs_sources(source, target)) // batch_size


def _pacs_sources(source: Names, target: Names) -> list[str]:
    return _split(source) or [name for name in PACS_NUM_TRAIN if name not in _split(target)]


def _split(names: Names) -> list[str]:
    words = names.split(",") if isinstance(names, str) else names or ()
    return list(dict.fromkeys(word.strip() for word in words if word.strip()))


# Wide ResNets and ResNets do not train at these learning rates without a norm.
_RESNET_NORMS = tuple(norm for norm in NORMS if norm != "none")
_SMALL_CONVNET = Choice(name="digits_convnet", args={"channels": [8, 16], "hidden": 32})

SUITES = {
    # A fifth of 10,001 steps would end before ADA's runs have gone through the images they generated.
    "digits": SuiteRecipes(erm=digits, short_from=50_000, smoke_model=_SMALL_CONVNET),
    "digits_mini": SuiteRecipes(erm=digits_mini, smoke_model=_SMALL_CONVNET),
    "cifar10c": SuiteRecipes(erm=cifar10c, norms=_RESNET_NORMS, smoke_model=Choice(name="wrn_16_4")),
    # A fifth would be 66 steps on photo, too few to learn the classifier.
    "pacs": SuiteRecipes(erm=pacs, norms=_RESNET_NORMS, erm_norms=(*_RESNET_NORMS, "dson"), short_by=3),
    "folder": SuiteRecipes(erm=folder, norms=("asr", "bn"), smoke_size=64),
}
