"""Runs in float64 that several processes share, for comparison with the same runs on one.

`python -m helpers.two_processes FOLDER` under the environment that `torchrun` makes.
"""

import os
import shutil
import sys
from pathlib import Path

from asrnorm.methods import METHODS
from helpers import tiny_run
from helpers.tiny_run import Choice, dson_config, kept_pool, pretrained_config, small_method, small_run, tiny_config

WEIGHTS = "toy.pt"  # under the data folder
RESUMED = "resumed"


def cases():
    grow = Choice(name="toy_grow", args={"interval": 9, "rounds": 1, "count": 21})
    common = {"precision": "float64", "steps": 20, "checkpoint_every": 7, "log_every": 5}
    every = {
        f"every-{name}": tiny_config(**small_run(name), **common) for name in METHODS if not name.startswith("toy")
    }
    # So few images that a process often has source images alone, or grown ones alone.
    few = {"method": small_method("m_ada"), "batch_size": 4, **common}
    norms = {"bn": {}, "sn": {}, "bin": {}, "asr": {"statistics": "batch"}}
    lone = {f"lone-{name}": tiny_config(norm=Choice(name=name, args=args), **few) for name, args in norms.items()}
    return (
        every
        | lone
        | {
            "erm-bn": tiny_config(**common),
            "erm-asr": tiny_config(norm=Choice(name="asr"), **common),
            "erm-asr-batch": tiny_config(norm=Choice(name="asr", args={"statistics": "batch"}), **common),
            "erm-bn_test": tiny_config(norm=Choice(name="bn_test"), **common),
            "erm-sn": tiny_config(norm=Choice(name="sn"), **common),
            "erm-bin": tiny_config(norm=Choice(name="bin"), **common),
            "erm-dson": dson_config(batch_size=7, **common),
            "grow-bn": tiny_config(method=grow, augment="cifar", **common),
            "grow-asr": tiny_config(method=grow, norm=Choice(name="asr"), **common),
            "pretrained-asr": pretrained_config(WEIGHTS, augment="cifar", **common),
            "noise-asr": tiny_config(
                method=Choice(name="toy_noise"), norm=Choice(name="asr"), augment="cifar", **common
            ),
            "ema-bn": tiny_config(average=Choice(name="ema", args={"decay": 0.9, "reestimate": 3}), **common),
            "swad-bn": tiny_config(
                average=Choice(name="swad", args={"optimum_patience": 2}), evaluate_every=4, batch_size=15, **common
            ),
            "views-bn": tiny_config(
                method=Choice(
                    name="consistency",
                    args={"views": ["none", ["photometric", "randconv", "fourier"]], "over": "rda", "weight": 2.0},
                ),
                augment=["cifar", "noise"],
                batch_size=15,
                **common,
            ),
            "uneven-bn": tiny_config(
                method=Choice(name="toy_noise"), batch_size=15, selection="source-val", evaluate_every=6, **common
            ),
        }
    )


def main(folder):
    tiny_run.install()
    import torch

    from asrnorm.training import run
    from asrnorm.training.assembly import join_world

    with kept_pool(), join_world(torch.device("cpu")):  # one group for all of the runs
        for name, config in cases().items():
            run(config, folder / name)
        if torch.distributed.get_rank() == 0:
            take_back(shutil.copytree(folder / "erm-bn", folder / RESUMED))
        torch.distributed.barrier()
        run(cases()["erm-bn"], folder / RESUMED)


def take_back(folder):
    """Let a finished run be one that was killed after the checkpoint before the last, of step 14."""
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.pt").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    # Everything is written and the group is closed. Threads of gloo may still end while the interpreter does, at which
    # C++ now and then aborts ("terminate called without an active exception"); that is not what is tested here.
    sys.stderr.flush()
    os._exit(0)
