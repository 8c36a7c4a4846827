import json

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from asrnorm.core.config import Choice
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.pool import Pool
from asrnorm.training import run
from asrnorm.training.average import AVERAGES, EMA, SWAD
from asrnorm.training.batches import Batches
from helpers.captured_run import fit, make
from helpers.tiny_run import ToyNet, ToySuite, kept_pool, model_bytes, tiny_config

ALL = {"ema": {"decay": 0.9}, "swa": {"start": 0.4, "interval": 2}, "swad": {"optimum_patience": 2}}


def config_of(name, **changes):
    values = {"average": Choice(name=name, args={"reestimate": 3, **ALL[name]}), "steps": 20, "checkpoint_every": 6}
    return tiny_config(**{**values, **({"evaluate_every": 4} if name == "swad" else {}), **changes})


def weights_after_each_step(config, tmp_path, monkeypatch):
    """The weights after every step of the run without an average, which does not change the training."""
    from asrnorm.training.trainer import Trainer

    kept, update = [], Trainer.update

    def noted(trainer, batch):
        loss = update(trainer, batch)
        kept.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", noted)
        trainer = fit(make(tiny_config(steps=config.steps)), tmp_path / "plain")
    return trainer, kept


def final_weights(config, tmp_path):
    run(config, tmp_path / "averaged")
    return load_file(tmp_path / "averaged" / "model.safetensors")


@pytest.mark.parametrize("name", ["ema", "swa"])
def test_the_weights_of_a_run_are_those_of_torch(name, tmp_path, monkeypatch):
    config = config_of(name)
    trainer, history = weights_after_each_step(config, tmp_path, monkeypatch)
    if name == "ema":
        reference = AveragedModel(trainer.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        steps = range(20)
    else:
        reference = AveragedModel(trainer.model)
        steps = range(8, 20, 2)
    for step in steps:
        for parameter, value in zip(trainer.model.parameters(), history[step], strict=True):
            parameter.data.copy_(value)
        reference.update_parameters(trainer.model)
    final = final_weights(config, tmp_path)
    for key, value in reference.module.named_parameters():
        assert torch.allclose(final[key], value, atol=1e-6), key


def test_running_statistics_are_those_of_the_averaged_weights_on_the_last_batches(tmp_path):
    final = final_weights(config_of("ema"), tmp_path)
    batches = Batches(Pool(ToySuite().train), batch_size=16)
    model = make(tiny_config()).model
    model.load_state_dict(final)
    inputs = []
    model.get_submodule("backbone.norm").register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with torch.no_grad():
        for step in (17, 18, 19):
            model(batches.fetch(step).images)
    mean = torch.stack([x.mean((0, 2, 3)) for x in inputs]).mean(0)
    variance = torch.stack([x.var((0, 2, 3)) for x in inputs]).mean(0)
    assert torch.allclose(final["backbone.norm.running_mean"], mean, atol=1e-6)
    assert torch.allclose(final["backbone.norm.running_var"], variance, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("norm", ["bn", "asr"])
def test_a_resumed_run_ends_in_the_same_bytes(name, norm, tmp_path):
    config = config_of(name, norm=Choice(name=norm), method=Choice(name="toy_grow"), augment="cifar")
    with kept_pool():
        run(config, tmp_path)
    whole = model_bytes(tmp_path)
    for file in ("result.json", "model.safetensors", "checkpoints/last.pt"):
        (tmp_path / file).unlink()
    run(config, tmp_path)
    assert model_bytes(tmp_path) == whole


def test_an_average_does_not_change_the_training(tmp_path):
    for name in ("none", *ALL):
        chosen = tiny_config(steps=20) if name == "none" else config_of(name)
        run(chosen, tmp_path / name)
    logs = {name: (tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("none", *ALL)}
    losses = {name: [json.loads(row).get("loss") for row in rows] for name, rows in logs.items()}
    for name in ALL:
        assert [loss for loss in losses[name] if loss] == losses["none"]
        assert model_bytes(tmp_path / name) != model_bytes(tmp_path / "none")


def test_the_averaged_weights_are_selected(tmp_path):
    config = config_of("ema", selection="source-val", evaluate_every=5)
    trainer = make(config)
    average, seen = EMA(decay=0.9, reestimate=3), []

    class Selector:
        def consider(self, model, step):
            own = [parameter.detach().clone() for parameter in model.parameters()]
            seen.append((step, own, [weight.clone() for weight in average.weights]))
            return 0.5

        def state_dict(self):
            return {}

    average.attach(trainer.model, config)
    trainer.average, trainer.selector = average, Selector()
    fit(trainer, tmp_path)
    assert [step for step, *_ in seen] == [5, 10, 15, 20]
    for _, own, averaged in seen:
        assert all(torch.equal(*pair) for pair in zip(own, averaged, strict=True))
    last = [parameter.detach() for parameter in trainer.model.parameters()]
    assert not all(torch.equal(*pair) for pair in zip(last, seen[-1][1], strict=True))


def swad_of(losses, steps_each=2, **options):
    """The average of SWAD along losses, where the weights after step t are t."""
    average = SWAD(**options)
    model = ToyNet()
    average.attach(model, tiny_config(steps=len(losses) * steps_each, evaluate_every=steps_each))
    remaining = list(losses)
    average.measure = lambda _: remaining.pop(0)
    for step in range(len(losses) * steps_each):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step + 1.0)
        average.set_share(average.share(step))
        average.update()
        if (step + 1) % steps_each == 0:
            average.consider(model, step + 1)
    return float(average.result()[0].flatten()[0])


@pytest.mark.parametrize(
    ("losses", "segments"),
    [
        ([5, 4, 3, 2, 1], range(4, 5)),  # falls to the end: the last
        ([5, 3, 1, 2, 3, 2, 2, 2], range(2, 8)),  # from the least of three; 1.3 times the mean of 1, 2, 3 is 2.6
        ([5, 3, 1, 2, 3, 2, 4, 4, 4, 4, 1, 1], range(2, 6)),  # ends before four that are all above, for good
        ([1, 1, 1, 4, 4, 4, 4], range(3)),
        ([1, 1, 1, 4, 4, 4, 1, 4, 4, 4], range(10)),
    ],
)
def test_swad_averages_from_the_least_loss_to_where_it_rises(losses, segments):
    steps = [2 * segment + k + 1 for segment in segments for k in range(2)]
    assert swad_of(losses, overfit_patience=4) == pytest.approx(sum(steps) / len(steps), rel=1e-5)


def test_swad_needs_validation_images_and_measurements(tmp_path):
    with pytest.raises(InputError, match="validation"):
        run(config_of("swad", suite=Choice(name="toy", args={"validation": False})), tmp_path / "a")
    with pytest.raises(InputError, match="evaluate_every"):
        run(config_of("swad", evaluate_every=0), tmp_path / "b")
    with pytest.raises(InputError, match="selection"):
        run(config_of("swad", selection="source-val"), tmp_path / "c")


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("emma", {}, UnknownNameError),
        ("ema", {"decya": 0.9}, UnknownNameError),
        ("ema", {"decay": 1.0}, InputError),
        ("swa", {"start": 1.0}, InputError),
        ("swad", {"optimum_patience": 0}, InputError),
        ("ema", {"reestimate": 0}, InputError),
    ],
)
def test_wrong_averages_are_refused_before_anything_is_read(name, args, error, tmp_path):
    with pytest.raises(error):
        run(tiny_config(average=Choice(name=name, args=args), evaluate_every=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_average_is_tested():
    assert set(AVERAGES.names()) == set(ALL)
