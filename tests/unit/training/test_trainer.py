import json
from functools import partial

import pytest
import torch
from torch import nn

from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import DivergenceError
from asrnorm.core.schedule import rate_factor
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch
from asrnorm.norms import ASRNorm2d
from asrnorm.training import run
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.log import RunLog
from asrnorm.training.trainer import Trainer, describe_origin, find_not_finite
from helpers import tiny_run
from helpers.tiny_run import Choice, ToySuite, tiny_config

CPU = torch.device("cpu")


def make(config, stop=None):
    suite = ToySuite(**config.suite.args)
    model = build_model(config, suite, 3, CPU)
    pool = Pool(suite.train)
    return Trainer(config, model, build_method(config, CPU, ALONE), pool, world=ALONE, stop=stop or config.steps)


def fit(trainer, folder):
    store = CheckpointStore(folder / "checkpoints", folder / "pool", trainer.config)
    trainer.fit(store, partial(RunLog, folder / "log.jsonl", None), "toy")
    return trainer


def weights(trainer):
    return torch.cat([value.flatten().double() for value in trainer.model.state_dict().values()])


@pytest.mark.parametrize("method", ["erm", "toy_grow", "toy_noise"])
@pytest.mark.parametrize("norm", ["bn", "asr", "bin"])
def test_stopping_anywhere_and_going_on_changes_nothing(method, norm, tmp_path):
    config = tiny_config(method=Choice(name=method), norm=Choice(name=norm), steps=16, checkpoint_every=100)
    whole = fit(make(config), tmp_path / "whole")
    for stop in (1, 7, 8, 13):
        folder = tmp_path / str(stop)
        fit(make(config, stop), folder)
        resumed = fit(make(config), folder)
        assert torch.equal(weights(resumed), weights(whole)), stop
        assert len(resumed.pool) == len(whole.pool)


def test_a_step_is_sgd_on_the_loss_of_the_method(tmp_path):
    config = tiny_config(norm=Choice(name="in"), steps=1)
    trainer = make(config)
    before = trainer.model.get_parameter("backbone.head.bias").detach().clone()
    batch = trainer.batches.fetch(0)
    loss = torch.nn.functional.cross_entropy(trainer.model(batch.images), batch.labels)
    slope = torch.autograd.grad(loss, trainer.model.get_parameter("backbone.head.bias"))[0]
    fit(trainer, tmp_path)
    expected = before - config.optim.lr * (slope + config.optim.weight_decay * before)
    assert torch.allclose(trainer.model.get_parameter("backbone.head.bias"), expected)


def test_a_grown_part_is_trained_on(tmp_path):
    config = tiny_config(method=Choice(name="toy_grow", args={"interval": 2, "rounds": 1}), steps=20)
    trainer = fit(make(config), tmp_path)
    rows = torch.cat([trainer.batches.rows(step) for step in range(2, 20)])
    assert int(rows.max()) >= 96
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in logged if "grow" in row] == [3]


def test_where_the_loss_is_looked_at_now_and_then_the_way_to_a_bad_one_is_gone_again(tmp_path):
    config = tiny_config(method=Choice(name="toy_noise", args={"bad_step": 17}), log_every=10, checkpoint_every=10)
    trainer = make(config)
    trainer._careful_until = 0  # as on a GPU
    with pytest.raises(DivergenceError, match=r"step 18: the loss is (nan|inf); the output of layer 'backbone\.h"):
        fit(trainer, tmp_path)
    kept = torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)
    assert kept["step"] == 10
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [10]


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    trainer = make(tiny_config(checkpoint_every=4, log_every=100, lambda_every=0))
    update = trainer.update

    def poisoned(batch):
        loss = update(batch)
        if batch.step == 7:
            trainer.model.get_parameter("backbone.head.bias").data.fill_(float("nan"))
        return loss

    monkeypatch.setattr(trainer, "update", poisoned)
    with pytest.raises(DivergenceError, match=r"step 8: the weights 'backbone\.head\.bias' are not finite"):
        fit(trainer, tmp_path)
    assert torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)["step"] == 4


def test_the_loss_of_a_row_is_the_mean_since_the_last_also_after_a_stop(tmp_path, monkeypatch):
    config = tiny_config(steps=10, log_every=5, checkpoint_every=3)
    losses = []
    loss = tiny_run.Method.loss

    def noted(method, model, batch):
        value = loss(method, model, batch)
        losses.append(float(value.detach()))
        return value

    monkeypatch.setattr(tiny_run.Method, "loss", noted)
    fit(make(config), tmp_path / "whole")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == pytest.approx([sum(losses[:5]) / 5, sum(losses[5:]) / 5])
    (tmp_path / "whole" / "checkpoints" / "last.pt").unlink()  # the previous one is of step 9
    fit(make(config), tmp_path / "whole")
    again = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]


def test_the_last_row_is_the_mean_of_the_steps_that_are_left(tmp_path, monkeypatch):
    losses = []
    loss = tiny_run.Method.loss
    monkeypatch.setattr(tiny_run.Method, "loss", lambda *args: losses.append(loss(*args)) or losses[-1])
    fit(make(tiny_config(steps=7, log_every=5)), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 7]
    assert rows[-1]["loss"] == pytest.approx(sum(float(value.detach()) for value in losses[5:]) / 2)


def test_compiled_parts_keep_names_and_state(monkeypatch):
    from asrnorm.training import assembly

    compiled = []
    monkeypatch.setattr(torch, "compile", lambda part: compiled.append(part.__name__) or part)
    model = make(tiny_config()).model
    names = list(model.state_dict())
    assembly.compile_parts(model)
    assert compiled == ["features", "embed", "classify"]
    assert list(model.state_dict()) == names
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 3)


def test_the_rate_of_a_row_is_that_of_its_last_step(tmp_path):
    config = tiny_config(steps=6)
    run(config, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    expected = [config.optim.lr * rate_factor(config.optim, step, 6) for step in (1, 3, 5)]
    assert [row["lr"] for row in rows] == pytest.approx(expected)


def test_layers_draw_anew_in_every_step(tmp_path, monkeypatch):
    drawn, loss = [], tiny_run.Method.loss

    def noted(method, model, batch):
        drawn.append(float(torch.rand(())))  # as dropout does, from the global generator
        return loss(method, model, batch)

    monkeypatch.setattr(tiny_run.Method, "loss", noted)
    run(tiny_config(steps=4), tmp_path)
    assert len(set(drawn)) == 4


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), ASRNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def describe(model, images):
    return describe_origin(model, Batch(images, torch.zeros(2)), lambda: model(images))


def test_the_first_layer_in_order_of_execution_is_named():
    model, images = network(), torch.rand(2, 3, 6, 6)
    model(images)
    assert describe(model, images) == "every layer is finite, only the loss is not"
    model[1].gamma_bias.data.fill_(3e38)
    model[1].beta_bias.data.fill_(3e38)
    assert describe(model, images) == "the output of layer '1' (ASRNorm2d) is the first that is not finite"
    assert not model[1]._forward_hooks


def test_what_was_bad_before_the_forward_pass_is_said():
    model, images = network(), torch.rand(2, 3, 6, 6)
    model(images)
    assert describe(model, images * float("nan")) == "the images of the batch are not finite"
    model[0].bias.data[1] = float("inf")
    assert describe(model, images) == "the weights '0.bias' are not finite since the step before"


def test_running_statistics_count():
    model = nn.BatchNorm2d(3)
    assert find_not_finite(model) is None
    model.running_var[0] = float("nan")
    assert find_not_finite(model) == "the running statistics 'running_var' are"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_value_among_many_is_found(value, dtype):
    model = nn.Sequential(*(nn.Linear(7, 7) for _ in range(9))).to(dtype)
    assert find_not_finite(model) is None
    model[5].bias.data[3] = value
    assert find_not_finite(model) == "the weights '5.bias' are"


def test_large_values_are_finite_though_their_sum_is_not():
    model = nn.Linear(4, 4)
    model.weight.data.fill_(3e38)
    assert find_not_finite(model) is None
