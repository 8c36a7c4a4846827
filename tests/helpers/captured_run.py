"""A small run by the trainer itself, and all that it leaves behind."""

import json
from functools import partial

import torch

from asrnorm.core.distributed import ALONE
from asrnorm.data.pool import Pool
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.average import create_average
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.log import RunLog
from asrnorm.training.selection import create_loss_measure
from asrnorm.training.trainer import Trainer
from helpers.tiny_run import ToySuite

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
STEPS = 40


def make(config, device=CPU, stop=None):
    suite = ToySuite(**config.suite.args)
    model, method = build_model(config, suite, 3, device), build_method(config, device, ALONE)
    average = create_average(config, partial(create_loss_measure, suite, config, device, ALONE))
    pool = Pool(suite.train, device)
    return Trainer(config, model, method, pool, world=ALONE, stop=stop or config.steps, average=average)


def fit(trainer, folder):
    store = CheckpointStore(folder / "checkpoints", folder / "pool", trainer.config)
    trainer.fit(store, partial(RunLog, folder / "log.jsonl", None), "toy")
    return trainer


def outcome(trainer, folder):
    """All that a run leaves behind, but the time it took."""
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    tensors = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    for index, (images, labels) in enumerate(trainer.pool.parts):
        tensors |= {f"pool.{index}.images": images, f"pool.{index}.labels": labels}
    if trainer.average is not None:
        tensors |= {f"average.{index}": value for index, value in enumerate(trainer.average.result())}
    for index, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    return rows, tensors


def assert_equal(one, other):
    assert one[0] == other[0]
    assert set(one[1]) == set(other[1])
    differing = [name for name, value in one[1].items() if not torch.equal(value, other[1][name])]
    assert not differing
