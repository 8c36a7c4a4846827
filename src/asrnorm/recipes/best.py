"""`<suite>.best`: what this package does best on each suite, of all its parts, and for your own images.

Every value that a search decided was chosen on source images alone: studies `<suite>-search`, and the page
`docs/evaluation/search.md`. What a part resembles in a suite's targets is listed in the notes of `<suite>-best`.
"""

from dataclasses import replace
from typing import Any

from asrnorm.core.config import Choice, OptimConfig, RunConfig, Scale
from asrnorm.recipes.base import RECIPES, Names
from asrnorm.recipes.erm import PACS_EPOCHS, SUITES, pacs, pacs_steps_per_epoch

_PICTURE_BATCH = 64  # images, of two views each
_PICTURE_VIEW: list[str | dict[str, Any]] = [
    {"name": "photometric", "share": 0.6},
    {"name": "edges", "share": 0.25},
    {"name": "randconv", "share": 0.3},
    {"name": "fourier", "share": 0.3},
]


def _agree(views: list[Any], **options: Any) -> Choice:
    return Choice(name="consistency", args={"views": views, **options})


@RECIPES.register("pacs.best")
def pacs_best(*, scale: Scale = "paper", source: Names = None, target: Names = None) -> RunConfig:
    """ResNet-18 on a plain and a strongly changed view of each image that agree, with an average of the weights."""
    if source is None and target is None:
        source = "photo"
    epoch = pacs_steps_per_epoch(source, target, _PICTURE_BATCH)
    config = replace(
        pacs("asr", source=source, target=target),
        recipe="pacs.best",
        method=_agree(["none", _PICTURE_VIEW], weight=2.0, supervise="all", label_smoothing=0.1, shared=False),
        optim=OptimConfig(name="sgd", lr=0.01, momentum=0.9, weight_decay=5e-4, schedule="cosine"),
        average=Choice(name="ema", args={"decay": 0.99}),
        steps=PACS_EPOCHS * epoch,
        batch_size=_PICTURE_BATCH,
        selection="last",
        evaluate_every=0,
        checkpoint_every=PACS_EPOCHS * epoch,
        log_every=epoch,
        lambda_every=0,
    )
    return SUITES["pacs"].at_scale(config, scale)
