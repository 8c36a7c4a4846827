"""`digits_mini`: the protocols of Digits on the embedded suite, sized for two CPU cores.

All sizes are our choice: three eighths of the ConvNet's channels, a learning rate ten times the paper's, and 800
steps in place of a million. `paper` is the size of the demo.
"""

from functools import partial

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.recipes.base import NORMS, register_grid, vary
from asrnorm.recipes.digits import SMOKE_MODEL
from asrnorm.recipes.scale import at_scale

SEARCH = {"tuple_length": 3, "search_images": 200, "search_rows": "first"}


def erm(norm: str) -> RunConfig:
    """ERM on 4,000 embedded MNIST images, less than a minute on a CPU."""
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


def ada(norm: str) -> RunConfig:
    """ADA twice, of 1,000 images each."""
    return vary(
        erm(norm),
        "ada",
        rounds=2,
        interval=50,
        ascent_steps=15,
        ascent_lr=1.0,
        ascent_batch=32,
        penalty=1.0,
        distance="mean",
        growth="volpi",
        clip=True,
        quantize=False,
        count=1_000,
    )


def me_ada(norm: str) -> RunConfig:
    """ME-ADA twice, of 1,000 images each."""
    return vary(erm(norm), "me_ada", **ada(norm).method.args, entropy_weight=10.0)


def m_ada(norm: str) -> RunConfig:
    """M-ADA twice, of 1,000 images each."""
    return vary(erm(norm), "m_ada", **ada(norm).method.args, relaxation=2000.0, inner_lr=1e-3, wae_epochs=5)


def rda(norm: str) -> RunConfig:
    """RDA: a random tuple of transformations a batch."""
    return vary(erm(norm), "rda", tuple_length=3)


def rsda(norm: str) -> RunConfig:
    """RSDA with a search of 20 tuples on 200 images every 100 steps."""
    return vary(erm(norm), "rsda", interval=100, candidates=20, **SEARCH)


def esda(norm: str) -> RunConfig:
    """ESDA with a search of 4 tuples over 4 generations every 100 steps."""
    options = {"interval": 100, "population": 4, "generations": 4, "mutation": 0.1}
    return vary(erm(norm), "esda", **options, **SEARCH)


def rsc(norm: str) -> RunConfig:
    """RSC's first version."""
    return vary(erm(norm), "rsc", version="v1")


def pgd(norm: str) -> RunConfig:
    """PGD adversarial training at a mild strength."""
    return vary(erm(norm), "pgd", epsilon=0.1, ascent_steps=5, ascent_lr=0.03, random_start=True)


METHODS = (erm, ada, me_ada, m_ada, rda, rsda, esda, rsc, pgd)

register_grid("digits_mini", METHODS, NORMS, partial(at_scale, smoke_model=SMOKE_MODEL))
