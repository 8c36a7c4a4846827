"""Statistics of the global batch, where several processes share one.

A norm that looks at the batch would see a part of it only. Its layers are given a differentiable sum over the
processes, and join their moments with it: forward, backward and running statistics are those of a single process.
"""

import logging

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from asrnorm.norms.base import NormLayer
from asrnorm.world import World, sum_over_processes

logger = logging.getLogger("asrnorm")


def synchronize(model: nn.Module, world: World) -> int:
    """Let every norm of a model that looks at the batch in training look at the batch of all processes.

    Args:
        model: changed in place; with one process nothing is changed.
        world: the processes.

    Returns:
        How many layers were changed.
    """
    if world.size == 1:
        return 0
    layers = [module for module in model.modules() if isinstance(module, NormLayer) and hasattr(module, "running_mean")]
    for layer in layers:
        layer.process_sum = sum_over_processes
    own = (NormLayer, nn.SyncBatchNorm)
    foreign = [module for module in model.modules() if isinstance(module, _BatchNorm) and not isinstance(module, own)]
    if foreign and world.rank == 0:
        logger.warning(
            "%d batch norms are not this package's: each process has the statistics of its own part of the batch, and "
            "the first one's are kept",
            len(foreign),
        )
    return len(layers)
