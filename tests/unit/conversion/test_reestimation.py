"""Running statistics estimated anew are the means of those of the batches."""

import copy

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError, InputError
from helpers.small_net import small_net, trained


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


def test_parameters_modes_and_hooks_stay():
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
    with pytest.raises(ConversionError, match="no norm that keeps running statistics"):
        asrnorm.reestimate(nn.Sequential(nn.GroupNorm(1, 3)), [torch.randn(1, 3, 4, 4)])
    with pytest.raises(InputError, match="no images"):
        asrnorm.reestimate(nn.Sequential(nn.BatchNorm2d(3)), [])


def test_what_fails_midway_changes_nothing():
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


def test_images_that_are_not_finite_change_nothing():
    model = trained(small_net())
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match="NaN or infinity in its statistics"):
        asrnorm.reestimate(model, [torch.full((2, 3, 12, 12), float("nan"))])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    with pytest.raises(InputError, match=r"^the layer: NaN"):
        asrnorm.reestimate(nn.BatchNorm2d(3), [torch.full((2, 3, 4, 4), float("nan"))])
