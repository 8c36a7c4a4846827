"""Joining the processes that `torchrun` started: gloo on CPUs, NCCL on GPUs.

Statistics of the global batch, where several processes share one.

A norm that looks at the batch would see a part of it only. Its layers are given a differentiable sum over the
processes, and join their moments with it: forward, backward and running statistics are those of a single process.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from asrnorm.core.distributed import ALONE, World, sum_over_processes
from asrnorm.core.errors import InputError, WrongCallError
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.norms.base import NormLayer

T = TypeVar("T")


_DEVICES = ("cpu", "cuda", "mps")


def choose_device(name: str) -> torch.device:
    """Return the device of this process: `auto` is a GPU where there is one, the process's own under `torchrun`.

    `ASRNORM_DEVICE` may say otherwise what `auto` is.

    Raises:
        WrongCallError: of a kind that is not known here.
        InputError: a device that this machine does not have.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    setting = "device"
    if name == "auto" and os.environ.get(DEVICE_VARIABLE):
        name, setting = os.environ[DEVICE_VARIABLE], DEVICE_VARIABLE
    elif name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kinds = f"one of auto, {', '.join(_DEVICES)}" if setting == "device" else f"one of {', '.join(_DEVICES)}"
    try:
        device = torch.device(name)
    except RuntimeError:  # torch would list some twenty kinds
        raise WrongCallError(f"{setting} {name!r}: no such device; it must be {kinds}") from None
    if device.type not in _DEVICES:
        raise WrongCallError(f"{setting} {name!r} cannot be used: it must be {kinds}")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                f"{setting} {name!r}: this machine has no CUDA device that torch can use; set {setting}=cpu"
            )
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Give the processes of this run: those that `torchrun` started, or this one alone.

    A process group that is there already is used and left standing.

    Example:
        >>> with join_world(torch.device("cpu")) as world:
        ...     world.size
        1
    """
    if distributed.is_available() and distributed.is_initialized():
        yield World(distributed.get_rank(), distributed.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(distributed.get_rank(), distributed.get_world_size())
        distributed.barrier()  # none takes the group down while another still talks
    finally:
        distributed.destroy_process_group()


def from_first(value: T, world: World) -> T:
    """Return what the first process holds, on all of them.

    Example:
        >>> from_first("last.pt", ALONE)
        'last.pt'
    """
    if world.size == 1:
        return value
    box: list[Any] = [value if world.rank == 0 else None]
    distributed.broadcast_object_list(box, src=0)
    received: T = box[0]
    return received


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
