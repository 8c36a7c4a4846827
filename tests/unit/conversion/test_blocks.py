import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.conversion import BLOCKS, Block
from asrnorm.conversion.blocks import draw_beta
from asrnorm.core.config import Choice
from asrnorm.core.errors import ConversionError, InputError, UnknownNameError
from asrnorm.training import load_run, run
from helpers import tiny_run
from helpers.tiny_run import kept_pool, model_bytes, tiny_config


def staged():
    """A network with a stem and three stages."""
    model = nn.Sequential()
    model.add_module("stem", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    for number in range(1, 4):
        part = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        model.add_module(f"layer{number}", nn.Sequential(part))
    return model


class Mark(Block):
    """Counts its calls."""

    def __init__(self):
        super().__init__(p=1.0)
        self.seen = []

    def change(self, x):  # noqa: ARG002
        raise AssertionError("not called")

    def __call__(self, layer, *_):
        self.seen.append(layer)


def chosen(model, layers):
    mark = Mark()
    asrnorm.insert(model, mark, layers=layers)
    model(torch.rand(2, 3, 8, 8))
    names = {module: name for name, module in model.named_modules()}
    return [names[module] for module in mark.seen]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("auto", ["layer1", "layer2"]),
        ("early", ["layer1", "layer2"]),
        ("stages", ["layer1", "layer2", "layer3"]),
        ("all", ["layer1", "layer2", "layer3"]),
        ("but-last", ["layer1", "layer2"]),
        ("first", ["layer1"]),
        ("stem", ["stem"]),
        ("layer?", ["layer1", "layer2", "layer3"]),
        (["stem", "layer3"], ["stem", "layer3"]),
        (lambda _, module: isinstance(module, nn.ReLU), ["layer1.0.2", "layer2.0.2", "layer3.0.2"]),
    ],
)
def test_layers_are_chosen_by_preset_name_or_function(layers, expected):
    assert chosen(staged(), layers) == expected


def test_backbones_and_inner_networks_have_stages():
    model = asrnorm.create_model("wrn_16_4", norm="asr", num_classes=3)
    assert chosen(model, "early") == ["group1", "group2"]
    assert chosen(nn.Sequential(nn.Identity(), staged()), "first") == ["1.layer1"]


@pytest.mark.parametrize("layers", ["resnet-12", "layer9", ["early"], lambda *_: False])
def test_what_chooses_nothing_is_refused(layers):
    with pytest.raises(ConversionError):
        asrnorm.insert(staged(), "mixstyle", layers=layers)
    with pytest.raises(ConversionError):
        asrnorm.insert(nn.Sequential(nn.Conv2d(3, 4, 3)), "mixstyle")


@pytest.mark.parametrize("name", BLOCKS.names())
def test_a_block_is_active_in_training_alone_and_goes_without_a_trace(name):
    model = staged()
    before, hooks = copy.deepcopy(model.state_dict()), [len(module._forward_hooks) for module in model.modules()]
    asrnorm.insert(model, name, p=1.0)
    x = torch.rand(6, 3, 8, 8)
    torch.manual_seed(0)
    first = model(x)
    torch.manual_seed(0)
    assert torch.equal(model(x), first)
    assert not torch.equal(model(x), first)
    assert torch.equal(model.eval()(x), model(x))
    assert model.state_dict().keys() == before.keys()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not torch.equal(copied.train()(x), copied(x))
        asrnorm.remove(copied)
    assert not torch.equal(model.train()(x), model(x)), "the copies have blocks of their own"
    asrnorm.remove(model)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert torch.equal(model(x), model(x))
    with pytest.raises(ConversionError):
        asrnorm.remove(model)


def test_mixstyle_mixes_means_and_deviations_and_keeps_the_rest():
    torch.manual_seed(0)
    x = torch.randn(16, 5, 7, 6) * (0.5 + torch.rand(16, 5, 1, 1)) + torch.randn(16, 5, 1, 1)
    y = BLOCKS["mixstyle"](p=1.0, alpha=1.0).change(x)

    def split(maps):
        mean, deviation = maps.mean((2, 3), keepdim=True), maps.std((2, 3), keepdim=True)
        return mean[:, :, 0, 0], deviation[:, :, 0, 0], (maps - mean) / deviation

    mean, deviation, content = split(x)
    new_mean, new_deviation, new_content = split(y)
    assert torch.allclose(new_content, content, atol=1e-3)
    for i in range(16):  # a point between the image's own statistics and those of another image
        fits = []
        for j in range(16):
            own, other = torch.cat([mean[i], deviation[i]]), torch.cat([mean[j], deviation[j]])
            line, moved = other - own, torch.cat([new_mean[i], new_deviation[i]]) - own
            part = float(moved @ line / (line @ line).clamp(min=1e-12))
            fits.append(-1e-3 <= part <= 1 + 1e-3 and torch.allclose(moved, part * line, atol=1e-3))
        assert any(fits)


def test_noise_has_its_levels():
    torch.manual_seed(0)
    x = torch.ones(400, 3, 8, 8)
    multiplied = BLOCKS["noise"](p=1.0, additive=0.0, multiplicative=0.5).change(x)
    assert 0 < float((multiplied - 1).abs().max()) <= 0.5
    deviations = [float(BLOCKS["noise"](p=1.0, additive=2.0, multiplicative=0.0).change(x).std()) for _ in range(200)]
    assert np.mean(deviations) == pytest.approx(2 * 2 / 7, rel=0.1)  # the mean of Beta(2, 5) is 2/7


def test_beta_numbers_have_their_moments():
    torch.manual_seed(0)
    drawn = draw_beta(0.1, 0.1, 20_000, torch.device("cpu"))
    assert bool(((drawn >= 0) & (drawn <= 1)).all())
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(drawn.var()) == pytest.approx(0.25 / 1.2, rel=0.05)


def test_the_probability_is_that_of_the_batch():
    torch.manual_seed(0)
    layer = asrnorm.insert(nn.Sequential(nn.Identity()), "noise", layers="0", p=0.3)
    x = torch.ones(2, 3, 4, 4)
    changed = sum(not torch.equal(layer(x), x) for _ in range(500))
    assert 110 < changed < 190


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("mixstyl", {}, UnknownNameError),
        ("mixstyle", {"alhpa": 1.0}, UnknownNameError),
        ("mixstyle", {"alpha": 0.0}, InputError),
        ("noise", {"p": 1.5}, InputError),
        ("noise", {"additive": -1.0}, InputError),
    ],
)
def test_wrong_options_are_refused(name, options, error):
    with pytest.raises(error):
        asrnorm.insert(staged(), name, **options)


def test_a_layer_without_maps_is_named():
    model = asrnorm.insert(nn.Sequential(nn.Linear(3, 4)), "mixstyle", layers="0")
    with pytest.raises(InputError, match="Linear"):
        model(torch.rand(2, 3))


@pytest.fixture
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.mark.usefixtures("toys")
def test_a_run_with_blocks_resumes_to_the_same_bytes_and_is_loaded_without_them(tmp_path):
    blocks = [{"name": "mixstyle", "layers": "conv"}, {"name": "noise", "layers": ["norm"], "p": 0.9}]
    config = tiny_config(blocks=blocks, steps=16, checkpoint_every=6, method=Choice(name="toy_grow"))
    with kept_pool():
        run(config, tmp_path / "run")
    whole = model_bytes(tmp_path / "run")
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):
        (tmp_path / "run" / name).unlink()
    run(config, tmp_path / "run")
    assert model_bytes(tmp_path / "run") == whole
    with pytest.raises(ConversionError):
        asrnorm.remove(load_run(tmp_path / "run", device="cpu").model)
    with pytest.raises(UnknownNameError):
        run(tiny_config(blocks=[{"name": "mixstyle", "alfa": 1}]), tmp_path / "other")
