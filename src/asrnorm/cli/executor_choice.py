"""Where the runs of a launch take place: this machine, a Ray cluster, or Slurm, by the options of the command."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from asrnorm.coercion import parse

if TYPE_CHECKING:
    from asrnorm.launch import Executor, Job


def open_executor(
    todo: Sequence["Job"], workers: int | None, ray: str | None, slurm: str | None, runs: Path
) -> "Executor":
    """Return the place to run in.

    Args:
        todo: jobs that are to run there.
        workers: the most at once.
        ray: address of a cluster.
        slurm: options of submitit, as typed.
        runs: the folder of the run folders, where Slurm's own files go too.

    Raises:
        MissingDependencyError: Ray or submitit is not installed.
        InputError: no cluster answers, or no Slurm is here.
    """
    if ray is not None:
        from asrnorm.launch.ray_cluster import RayExecutor

        return RayExecutor(ray, workers)
    if slurm is not None:
        from asrnorm.launch.slurm import SlurmExecutor

        return SlurmExecutor(runs.absolute() / ".slurm", read_options(slurm), workers)
    from asrnorm.launch import LocalExecutor

    wanted = any(job.config.device in ("auto", "cuda") for job in todo)
    return LocalExecutor(workers, find_gpus() if wanted else ())


def read_options(text: str) -> dict[str, Any]:
    """Return `name=value,name=value` as a dict, each value in its type.

    Raises:
        typer.BadParameter: a part without an equals sign.

    Example:
        >>> read_options("timeout_min=600,slurm_partition=gpu")
        {'timeout_min': 600, 'slurm_partition': 'gpu'}
    """
    options = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{part!r} is not of the form name=value", param_hint="--slurm")
        options[name.strip()] = parse(value)
    return options


def find_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` takes them."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(count))
    return [name.strip() for name in names][:count]
