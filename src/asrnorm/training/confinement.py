"""What is done to a trained network on source images before it is scored."""

import logging

import torch

from asrnorm.config import RunConfig
from asrnorm.conversion import confine
from asrnorm.data import Suite
from asrnorm.models import Classifier
from asrnorm.training.distributed import from_first
from asrnorm.world import ALONE, World

logger = logging.getLogger("asrnorm")


def confine_to_source(model: Classifier, suite: Suite, config: RunConfig, world: World = ALONE) -> None:
    """Confine the learned means of a model to their range on training images, which are not augmented for it.

    Every process takes all of the images, and all go on with what the first has found.

    Args:
        model: trained, on its device; changed in place.
        suite: whose training images, `config.confine` of them at most, spread evenly over the set.
        config: of the run.
        world: the processes.

    Raises:
        ConversionError: the model learns no standardization.
    """
    from asrnorm.evaluation.inference import Inference
    from asrnorm.evaluation.score import evaluation_size
    from asrnorm.evaluation.shard import iterate_batches, thin

    inference = Inference.of(model, precision=config.precision, size=evaluation_size(suite, config.augment))
    images = thin(suite.train, config.confine)
    batches = (inference.to_input(batch) for _, batch, _ in iterate_batches(images, config.evaluate_batch))
    with inference.autocast():
        count = confine(model, batches)
    logger.info("learned means of %d layers confined to their range on %d source images", count, len(images))
    if world.size > 1:
        own: dict[str, torch.Tensor] = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(from_first(own if world.rank == 0 else {}, world))
