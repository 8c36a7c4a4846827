"""What is done to a pretrained network on source images before the first step."""

import logging

import torch

from asrnorm.config import RunConfig
from asrnorm.conversion import calibrate, reestimate
from asrnorm.data.pool import Pool
from asrnorm.models import Classifier
from asrnorm.training.assembly import run_dtype
from asrnorm.training.batch import Batches
from asrnorm.training.distributed import from_first
from asrnorm.world import ALONE, World

logger = logging.getLogger("asrnorm")


def prepare_model(model: Classifier, config: RunConfig, pool: Pool, world: World = ALONE) -> None:
    """Calibrate converted norms, then estimate running statistics anew, as far as the config asks for it.

    The batches are the first of a shuffled training run, augmented as in training; every process takes them whole, and
    all of them go on with what the first has found.

    Args:
        model: at its start, on the device of the pool; changed in place.
        config: of the run.
        pool: the source images.
        world: the processes.

    Raises:
        ConversionError: the model has nothing to calibrate, or no running statistics.
    """
    if not (config.calibrate or config.reestimate):
        return
    batches = Batches(
        pool,
        batch_size=config.batch_size,
        seed=config.seed,
        augment=config.augment,
        dtype=run_dtype(config),
    )
    if config.calibrate:
        report = calibrate(model, (batches.fetch(step).images for step in range(config.calibrate)))
        logger.info("on %d batches: %s", config.calibrate, report)
    if config.reestimate:
        # After the calibration, which changes what the norms that keep statistics get to see.
        count = reestimate(model, (batches.fetch(step).images for step in range(config.reestimate)))
        logger.info("running statistics of %d norms estimated on %d batches", count, config.reestimate)
    if world.size > 1:
        own: dict[str, torch.Tensor] = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(from_first(own if world.rank == 0 else {}, world))
