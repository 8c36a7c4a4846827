"""The same function in several processes that talk over gloo, as a distributed run does."""

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from asrnorm.core.distributed import World


def run_in_processes(function, folder, size=2):
    """Return what `function(world)` returned in each process; it must be importable by name."""
    folder.mkdir(parents=True, exist_ok=True)
    multiprocessing.spawn(_enter, (function, folder, size), nprocs=size)
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def _enter(rank, function, folder, size):
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "store"), size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        torch.save(function(World(rank, size)), folder / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()
