"""A launch of real runs on the toys, to be killed: `python -m helpers.launch_toys FOLDER`; prints what is done."""

import sys
from pathlib import Path

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.launch import Job, LocalExecutor, launch
from asrnorm.launch.view import LaunchView
from asrnorm.studies import Evaluation


def jobs(place):
    """A run with BN that is scored again, and one with ASR-Norm that grows its pool and is analyzed."""
    again = Evaluation(name="bn_test-8", overrides={"norm": "bn_test", "evaluate_batch": 8})
    noise = Choice(name="toy_noise", args={"pause": 0.05})
    grow = Choice(name="toy_grow", args={"interval": 7, "rounds": 3, "pause": 0.3})
    module = "helpers.toy_asrnorm"
    bn, asr = make_config("bn", noise), make_config("asr", grow)
    return [
        Job(config=bn, folder=place / "bn", evaluations=(again,), module=module),
        Job(config=asr, folder=place / "asr", analyses=("statistics",), module=module),
    ]


def make_config(norm, method):  # `tiny_run` has one too, but takes seconds to import torch
    return RunConfig(
        recipe=f"toy.{method.name}_{norm}",
        suite=Choice(name="toy"),
        model=Choice(name="toy_net"),
        norm=Choice(name=norm),
        method=method,
        optim=OptimConfig(lr=0.05),
        steps=30,
        batch_size=16,
        device="cpu",
        checkpoint_every=5,
        log_every=1,
        evaluate_batch=16,
    )


def main(place):
    with LaunchView() as view:
        outcome = launch(jobs(place), LocalExecutor(2), view=view)
    sys.stdout.write(" ".join(sorted(job.name for job in outcome.done)))
    return 0 if not outcome.failed and not outcome.left else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
