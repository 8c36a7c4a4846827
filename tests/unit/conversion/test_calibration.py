"""Calibration to the original's moments, and reestimation of running statistics."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import asrnorm
from asrnorm.conversion.calibration import Moments
from asrnorm.core.errors import ConversionError, InputError, InputTypeError
from asrnorm.models.resnet import BasicBlock, ResNet
from helpers.small_net import small_net, trained
from helpers.toy_timm import BatchNormAct2d

SHIFT = torch.tensor([0.5, -1.0, 2.0]).view(3, 1, 1)


def pretrained(seed=0, fresh=False):
    """A small residual network in float64 whose norms have gains of both signs and statistics of other images."""
    torch.manual_seed(seed)
    model = ResNet(BasicBlock, (1, 1, 1, 1), num_classes=5).double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.normal_()
                module.bias.normal_()
    if not fresh:
        asrnorm.reestimate(model, [torch.randn(4, 3, 64, 64).double()])
    return model


def source(sizes=(4, 2)):
    torch.manual_seed(1)
    return [(2 * torch.randn(size, 3, 64, 64) + SHIFT).double() for size in sizes]


def outputs(model, names, batches):
    """All outputs of the named layers, over all batches, before the ReLU that a layer may do in passing."""
    found = {name: [] for name in names}
    hooks = []
    for name in names:
        layer = model.get_submodule(name)
        forward = type(layer).forward

        def keep(module, args, name=name, forward=forward):
            found[name].append(forward(module, args[0]))

        hooks.append(layer.register_forward_pre_hook(keep))
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in batches])
    for hook in hooks:
        hook.remove()
    return {name: torch.cat([y.transpose(0, 1).flatten(1) for y in parts], 1) for name, parts in found.items()}, logits


@pytest.mark.parametrize("norm", ["asr", "ilm"])
def test_every_layer_has_the_moments_of_the_original(norm):
    original = pretrained().eval()
    model = asrnorm.convert(copy.deepcopy(original), norm, layers="all")
    names = [name for name, _, _ in asrnorm.conversion_summary(model).converted]
    plain = copy.deepcopy(model).eval()
    report = asrnorm.calibrate(model, source())
    assert (len(report.layers), report.channels, report.skipped) == (12, 2880, ())
    wanted, logits = outputs(original, names, source())
    found, calibrated = outputs(model.eval(), names, source())
    met = 0
    for name in names:
        torch.testing.assert_close(found[name].mean(1), wanted[name].mean(1), rtol=1e-4, atol=1e-4)
        std = [values[name].std(1, correction=0) for values in (found, wanted)]
        met += int(torch.isclose(*std, rtol=2e-3, atol=1e-5).sum())
    assert met >= 2880 - report.unmet
    assert report.unmet < 2880 * (0.02 if norm != "ilm" else 0.5)  # whose networks have no gate
    _, uncalibrated = outputs(plain, [], source())
    assert (calibrated - logits).norm() < 0.9 * (uncalibrated - logits).norm()


def test_an_output_rises_and_falls_with_the_original():
    original = trained(small_net())
    with torch.no_grad():
        original[1].weight[::2] *= -1
    batches = [torch.randn(16, 3, 12, 12)]
    model = asrnorm.convert(copy.deepcopy(original), "asr")
    asrnorm.calibrate(model, batches)
    theirs, mine = (outputs(net, ["1"], batches)[0]["1"] for net in (original, model))
    pairs = torch.stack([torch.corrcoef(torch.stack(pair))[0, 1] for pair in zip(theirs, mine, strict=True)])
    assert bool((pairs > 0.5).all())


def test_without_running_statistics_those_of_the_batch_are_used():
    model = asrnorm.convert(pretrained(fresh=True), "asr", layers="resnet-12")
    asrnorm.calibrate(model, source((6,)))
    original = asrnorm.revert(copy.deepcopy(model)).train()
    names = ["bn1", "layer2.0.bn1", "layer3.0.downsample.1"]
    (wanted, _), (found, _) = (outputs(net, names, source((6,))) for net in (original, model.train()))
    for name in names:
        torch.testing.assert_close(found[name].mean(1), wanted[name].mean(1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found[name].std(1), wanted[name].std(1), rtol=0.01, atol=0.01)


def test_nothing_else_is_changed_and_twice_is_once():
    model = asrnorm.convert(pretrained(), "asr", layers="early").train()
    model.layer4.eval()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    asrnorm.calibrate(model, source())
    after = copy.deepcopy(model.state_dict())
    changed = {key for key in after if not torch.equal(after[key], before[key])}
    assert changed == {key for key in after if key.endswith(("gamma_bias", "beta_bias"))}
    assert [module.training for module in model.modules()] == modes
    assert all(not module._forward_pre_hooks for module in model.modules())
    asrnorm.calibrate(model, source())
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, after[key])
    assert isinstance(asrnorm.revert(model).bn1, nn.BatchNorm2d)


def test_activations_inside_a_norm_are_left_out_of_its_moments():
    layers = (nn.Conv2d(3, 8, 3), BatchNormAct2d(8, act=nn.ReLU()), nn.Conv2d(8, 4, 1), BatchNormAct2d(4))
    original = trained(nn.Sequential(*layers))
    model = asrnorm.convert(copy.deepcopy(original), "asr")
    batches = [torch.randn(8, 3, 10, 10) + 1]
    report = asrnorm.calibrate(model, batches)
    assert report.layers == ("1", "3")
    with torch.no_grad():
        x, mine = original[0](batches[0]), model[0](batches[0])
        wanted = nn.functional.batch_norm(
            x, original[1].running_mean, original[1].running_var, original[1].weight, original[1].bias, eps=1e-5
        )
        found = model[1].norm(mine)
    for moment in (torch.mean, torch.std):
        torch.testing.assert_close(moment(found, (0, 2, 3)), moment(wanted, (0, 2, 3)), rtol=2e-3, atol=2e-3)
    assert float(model[1](mine).detach().min()) == 0


def test_relu_as_an_option_of_the_layer_is_left_out_too():
    model = asrnorm.convert(trained(nn.Sequential(nn.BatchNorm2d(3))), "asr", activation="relu")
    x = torch.randn(8, 3, 12, 12)
    asrnorm.calibrate(model, [x])
    assert model[0].activation == "relu"
    original = asrnorm.revert(copy.deepcopy(model))
    model[0].activation = None
    with torch.no_grad():
        torch.testing.assert_close(model(x).std((0, 2, 3)), original(x).std((0, 2, 3)), rtol=1e-3, atol=1e-3)


def test_a_gain_near_zero_and_a_dead_channel_do_no_harm():
    model = trained(nn.Sequential(nn.BatchNorm2d(3)))
    with torch.no_grad():
        model[0].weight[0] = 1e-9
    x = torch.randn(8, 3, 12, 12)
    x[:, 1] = 0.25
    asrnorm.convert(model, "asr", gated_rescale=True)
    gain = model[0].gamma_bias[1].item()
    report = asrnorm.calibrate(model, [x])
    assert report.unmet == 2  # the networks alone vary more than these channels did
    assert "the deviation of 2 could not be met" in str(report)
    assert model[0].gamma_bias[1].item() == gain
    assert bool((model[0].gamma_bias.abs() < 3).all())


def test_what_loaders_give_is_taken_and_only_as_much_as_asked_for():
    models = [asrnorm.convert(trained(small_net()), "asr") for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for mine, theirs in zip(models[1].modules(), models[0].modules(), strict=True):
        if hasattr(theirs, "_asrnorm_original"):
            mine._asrnorm_original = copy.deepcopy(theirs._asrnorm_original)
    batch = torch.randn(4, 3, 12, 12)
    asrnorm.calibrate(models[0], [batch])
    asrnorm.calibrate(models[1], itertools.repeat((batch.double(), "labels")), num_batches=1)
    assert torch.equal(models[0][1].gamma_bias, models[1][1].gamma_bias)


def test_a_single_layer_can_be_calibrated():
    layer = asrnorm.convert(trained(nn.Sequential(nn.BatchNorm2d(3)))[0], "asr")
    assert asrnorm.calibrate(layer, [torch.randn(4, 3, 8, 8)]).layers == ("",)


@pytest.mark.parametrize(
    ("make", "batches", "error"),
    [
        (small_net, [torch.randn(2, 3, 12, 12)], ConversionError),
        (lambda: asrnorm.convert(small_net(), "none"), [torch.randn(2, 3, 12, 12)], ConversionError),
        (lambda: asrnorm.convert(small_net(), "asr"), [], InputError),
        (lambda: asrnorm.convert(small_net(), "asr"), [torch.zeros(0, 3, 12, 12)], InputError),
        (lambda: nn.DataParallel(asrnorm.convert(small_net(), "asr")), [], ConversionError),
    ],
    ids=["unconverted", "no gain", "no batch", "empty batch", "wrapped"],
)
def test_calibration_needs_converted_norms_and_images(make, batches, error):
    with pytest.raises(error):
        asrnorm.calibrate(make(), batches)


def test_a_network_that_fails_is_left_as_it_was():
    model = asrnorm.convert(trained(small_net()), "asr")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError):
        asrnorm.calibrate(model, [torch.randn(2, 3, 12, 12), torch.randn(2, 4, 12, 12)])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not model.training


@pytest.mark.parametrize(
    ("batches", "num_batches", "error", "advice"),
    [
        (torch.zeros(2, 3, 4, 4), None, InputTypeError, r"pass \[images\]"),
        ([{"images": torch.zeros(2, 3, 4, 4)}], None, InputTypeError, None),
        ([("a", "b")], None, InputTypeError, None),
        ([torch.zeros(2, 3, 4, 4, dtype=torch.uint8)], None, InputTypeError, r"\[batch\[0\] / 255 for"),
        ([torch.zeros(2, 3, 4, 4)], -1, InputError, None),
    ],
    ids=["tensor", "dict", "text", "bytes", "negative"],
)
def test_invalid_batches_are_rejected(batches, num_batches, error, advice):
    model = asrnorm.convert(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), "asr", gated_rescale=True)
    with pytest.raises(error, match=advice):
        asrnorm.calibrate(model, batches, num_batches=num_batches)


def test_a_norm_that_is_used_twice_is_calibrated_on_its_first_use():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(5 * self.norm(x) + 3)

    original = trained(Twice())
    model = asrnorm.convert(copy.deepcopy(original), "asr")
    x = torch.randn(16, 3, 12, 12)
    asrnorm.calibrate(model, [x])
    with torch.no_grad():
        found, wanted = model.norm(x), original.norm(x)
    torch.testing.assert_close(found.mean((0, 2, 3)), wanted.mean((0, 2, 3)), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.std((0, 2, 3)), wanted.std((0, 2, 3)), rtol=1e-3, atol=1e-3)


def test_norms_that_were_left_and_are_fresh_stay_fresh():
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    model = asrnorm.convert(nn.Sequential(*layers), "asr", layers=lambda name, norm: name == "4")
    before = copy.deepcopy(dict(model.named_buffers()))
    asrnorm.calibrate(model, [torch.randn(4, 3, 12, 12) + 1])
    assert before
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_a_norm_that_has_seen_images_of_mean_zero_is_not_fresh():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3)).eval()
    model[0].running_var.fill_(4.0)
    asrnorm.convert(model, "asr")
    x = torch.randn(16, 3, 12, 12)
    asrnorm.calibrate(model, [x])
    with torch.no_grad():
        torch.testing.assert_close(model(x).std((0, 2, 3)), x.std((0, 2, 3)) / 2, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_images_that_are_not_finite_change_nothing(value):
    model = asrnorm.convert(trained(small_net()), "asr", layers="all")
    state = copy.deepcopy(model.state_dict())
    bad = torch.rand(2, 3, 12, 12)
    bad[0, 0, 0, 0] = value
    with pytest.raises(InputError):
        asrnorm.calibrate(model, [torch.rand(2, 3, 12, 12), bad])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_model_that_cannot_be_copied_is_one_line():
    model = asrnorm.convert(trained(small_net()), "asr", layers="all")
    conv = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    prune.l1_unstructured(conv, "weight", 0.3)
    images = torch.rand(2, 3, 12, 12)
    model(images)
    with pytest.raises(ConversionError, match=r"prune\.remove"):
        asrnorm.calibrate(model, [images])
    prune.remove(conv, "weight")
    assert asrnorm.calibrate(model, [images]).layers


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (5,), (4, 6)])
def test_moments_over_batches_are_those_of_all_values(dtype, shape):
    torch.manual_seed(0)
    batches = [(100 + size * torch.randn(size, 3, *shape)).to(dtype) for size in (1, 7, 4)]
    moments = Moments()
    for batch in batches:
        moments.add(batch)
    whole = torch.cat(batches).double().transpose(0, 1).flatten(1)
    assert moments.count == whole.shape[1]
    torch.testing.assert_close(moments.mean, whole.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(moments.variance, whole.var(1, correction=0), rtol=1e-5, atol=0)


@pytest.mark.parametrize("norm", ["bn", "bin", "sn", "asr"])
def test_the_mean_over_batches_whatever_was_there_before(norm):
    torch.manual_seed(0)
    options = {"statistics": "batch"} if norm == "asr" else {}
    model = nn.Sequential(asrnorm.create_norm(norm, 3, **options))
    model[0].running_mean.fill_(7.0)
    batches = [torch.randn(size, 3, 6, 6) + size for size in (2, 5, 3)]
    assert asrnorm.reestimate(model, batches) == 1
    mean = torch.stack([x.mean((0, 2, 3)) for x in batches]).mean(0)
    variance = torch.stack([x.var((0, 2, 3)) for x in batches]).mean(0)
    torch.testing.assert_close(model[0].running_mean, mean)
    torch.testing.assert_close(model[0].running_var, variance, rtol=0.05 if norm == "sn" else 1e-5, atol=1e-5)
    assert int(model[0].num_batches_tracked) == 3
    assert model[0].momentum == 0.1


def test_evaluation_then_agrees_with_training_on_one_large_batch():
    model = trained(small_net())
    x = 3 * torch.randn(64, 3, 12, 12) + 1
    asrnorm.reestimate(model, [x])
    with torch.no_grad():
        evaluated = model(x)
        torch.testing.assert_close(model.train()(x), evaluated, rtol=0.02, atol=0.05)


def test_reestimation_keeps_parameters_modes_and_hooks():
    model = trained(small_net()).train()
    model[1].momentum = None
    model[4].eval()
    before = copy.deepcopy(dict(model.named_parameters()))
    modes = [module.training for module in model.modules()]
    assert asrnorm.reestimate(model, [torch.randn(4, 3, 12, 12)] * 3, num_batches=2) == 3
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert [module.training for module in model.modules()] == modes
    assert model[1].momentum is None
    assert int(model[1].num_batches_tracked) == 2
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_a_model_without_running_statistics_and_no_images_are_refused():
    with pytest.raises(ConversionError):
        asrnorm.reestimate(nn.Sequential(nn.GroupNorm(1, 3)), [torch.randn(1, 3, 4, 4)])
    with pytest.raises(InputError):
        asrnorm.reestimate(nn.Sequential(nn.BatchNorm2d(3)), [])


def test_reestimation_that_fails_midway_changes_nothing():
    model = trained(small_net())
    before = {name: value.clone() for name, value in model.named_buffers()}

    def broken():
        yield torch.randn(4, 3, 12, 12)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        asrnorm.reestimate(model, broken())
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_nothing_is_dropped_while_statistics_are_taken():
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(3)).train()
    asrnorm.reestimate(model, [torch.ones(4, 3, 8, 8)])
    assert (model[1].running_mean.tolist(), model[1].running_var.tolist()) == ([1.0] * 3, [0.0] * 3)
    assert model[0].training


def test_reestimation_on_images_that_are_not_finite_changes_nothing():
    model = trained(small_net())
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError):
        asrnorm.reestimate(model, [torch.full((2, 3, 12, 12), float("nan"))])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    with pytest.raises(InputError):
        asrnorm.reestimate(nn.BatchNorm2d(3), [torch.full((2, 3, 4, 4), float("nan"))])
