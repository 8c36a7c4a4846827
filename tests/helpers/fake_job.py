"""Jobs of the fake command line, and a view that remembers what it was told."""

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.launch import Job


def fake_job(folder, *, steps=3, seed=0, device="auto", evaluations=(), analyses=(), may_diverge=False, **options):
    config = RunConfig(
        recipe="toy.erm_bn",
        seed=seed,
        suite=Choice(name="toy"),
        model=Choice(name="toy_net"),
        norm=Choice(name="bn"),
        method=Choice(name="erm", args=options),
        optim=OptimConfig(),
        steps=steps,
        batch_size=1,
        device=device,
    )
    return Job(
        config=config,
        folder=folder,
        evaluations=tuple(evaluations),
        analyses=tuple(analyses),
        may_diverge=may_diverge,
        module="helpers.fake_asrnorm",
    )


def starts(job):
    """The step from which each start of a fake run went on, and the GPU it was given."""
    return [tuple(line.split()) for line in (job.folder / "starts").read_text().splitlines()]


class Lines:
    """A view for tests."""

    def __init__(self):
        self.said = []
        self.most_running = 0

    def say(self, line):
        self.said.append(line)

    def show(self, board):
        self.most_running = max(self.most_running, len(board.running))
