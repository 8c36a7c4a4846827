"""A user's own images: defaults that neither need a download nor assume a size. All values are our choice."""

from functools import partial

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.recipes.base import Names, join_names, register_grid, vary
from asrnorm.recipes.scale import at_scale

NORMS = ("asr", "bn")
# Rows evenly over the set, since folders are read class by class.
SEARCH = {"tuple_length": 3, "search_images": 200, "search_rows": "even"}


def erm(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ERM: ResNet-18 for 3,000 steps on your own images."""
    domains = {"source": join_names(source), "target": join_names(target)}
    return RunConfig(
        recipe=f"folder.erm_{norm}",
        suite=Choice(name="folder", args={side: names for side, names in domains.items() if names}),
        # Without pretrained weights, since no file of them comes with the package. With
        # weights=weights/resnet18-f37072fd.pth a few hundred steps do.
        model=Choice(name="resnet18"),
        norm=Choice(name=norm),
        method=Choice(name="erm"),
        # Low enough to fine-tune, high enough to train from scratch.
        optim=OptimConfig(name="sgd", lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, schedule="cosine"),
        steps=3_000,
        batch_size=32,
        augment="pacs",  # crop, flip and color; augment=cifar where color tells the classes apart
        selection="source-val",
        evaluate_every=300,
        evaluate_batch=64,
        checkpoint_every=300,
        log_every=20,
        lambda_every=100,
    )


def ada(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ADA three times, each of all your images."""
    return vary(
        erm(norm, source=source, target=target),
        "ada",
        rounds=3,
        interval=150,
        ascent_steps=15,
        ascent_lr=1.25,
        ascent_batch=32,
        penalty=1.0,
        distance="mean",
        growth="source",
        clip=True,
        quantize=True,  # a quarter of the memory: 150 KB an image of 224x224 and round
    )


def me_ada(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ME-ADA three times, each of all your images."""
    config = ada(norm, source=source, target=target)
    return vary(config, "me_ada", **config.method.args, entropy_weight=10.0)


def m_ada(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """M-ADA three times, each of your images and those grown before."""
    config = ada(norm, source=source, target=target)
    options = {**config.method.args, "growth": "m_ada"}
    return vary(config, "m_ada", **options, relaxation=2000.0, inner_lr=0.01, wae_epochs=20)


def rda(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """RDA: a random tuple of color and tone changes a batch."""
    return vary(erm(norm, source=source, target=target), "rda", tuple_length=3)


def rsda(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """RSDA with a search of 20 tuples on 200 of your images every 150 steps."""
    config = erm(norm, source=source, target=target)
    return vary(config, "rsda", interval=150, candidates=20, **SEARCH)


def esda(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """ESDA with a search of 4 tuples over 4 generations every 150 steps."""
    options = {"interval": 150, "population": 4, "generations": 4, "mutation": 0.1}
    return vary(erm(norm, source=source, target=target), "esda", **options, **SEARCH)


def rsc(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """RSC's first version."""
    return vary(erm(norm, source=source, target=target), "rsc", version="v1")


def pgd(norm: str, *, source: Names = None, target: Names = None) -> RunConfig:
    """PGD adversarial training at a mild strength."""
    return vary(
        erm(norm, source=source, target=target),
        "pgd",
        epsilon=4 / 255,
        ascent_steps=5,
        ascent_lr=1 / 255,
        random_start=True,
    )


METHODS = (erm, ada, me_ada, m_ada, rda, rsda, esda, rsc, pgd)

register_grid("folder", METHODS, NORMS, partial(at_scale, smoke_size=64))
