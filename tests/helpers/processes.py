"""Several processes of one run on this machine, joined by gloo."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from asrnorm.core.distributed import World


def run_processes(function, size, folder, *arguments):
    """Call `function(world, *arguments)` in each of `size` processes; return what they return, through JSON, by rank.

    The function must be importable by name, and its arguments picklable.
    """
    multiprocessing.spawn(_enter, (function, size, str(folder), arguments), nprocs=size)
    return [json.loads((Path(folder) / f"rank{rank}.json").read_text()) for rank in range(size)]


def _enter(rank, function, size, folder, arguments):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    try:
        result = function(World(rank, size), *arguments)
        (Path(folder) / f"rank{rank}.json").write_text(json.dumps(result))
    finally:
        distributed.destroy_process_group()
