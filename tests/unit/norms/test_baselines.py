"""GN, LN, ILM, SN and BIN."""

import pytest
import torch
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.norms import BatchInstanceNorm, GroupNorm, ILMNorm, LayerNorm, SwitchNorm

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


def test_layer_norm_is_pytorchs_over_channels_and_positions():
    torch.testing.assert_close(LayerNorm(8)(X), nn.LayerNorm([8, 5, 4])(X))


def test_group_norm_falls_back_to_a_divisor():
    assert GroupNorm(8).num_groups == 8
    assert GroupNorm(48).num_groups == 24
    assert GroupNorm(7, num_groups=4).num_groups == 1
    with pytest.raises(InputError):
        GroupNorm(8, num_groups=0)


def test_ilm_sizes_follow_its_authors():
    assert ILMNorm(64).encoder.weight.shape == (2, 4)
    assert ILMNorm(512).encoder.weight.shape == (2, 32)
    assert ILMNorm(1024).encoder.weight.shape == (4, 64)
    assert ILMNorm(24).group_size == 12
    assert sum(p.numel() for p in ILMNorm(64).parameters()) == 2 * 4 * 3 + 128
    with pytest.raises(InputError):
        ILMNorm(8, group_size=0)


def test_ilm_gain_is_shared_in_a_key_group():
    layer = ILMNorm(32)
    x = torch.randn(2, 32, 6, 6)
    gain = (layer(x).amax((2, 3)) - layer(x).amin((2, 3))) / (x.amax((2, 3)) - x.amin((2, 3))) * x.std((2, 3))
    torch.testing.assert_close(gain[:, :16], gain[:, :1].expand(2, 16), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(gain[:, 16:], gain[:, 16:17].expand(2, 16), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("channels", "hidden"), [(64, 2), (256, 2), (320, 1), (512, 2), (1024, 4)])
def test_the_hidden_units_of_ilm_are_those_of_its_authors(channels, hidden):
    layer = ILMNorm(channels, group_size=16, reduction=16)
    assert layer.encoder.weight.shape == (hidden, channels // 16)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([60.0, 0.0, 0.0], "in"), ([0.0, 60.0, 0.0], "ln"), ([0.0, 0.0, 60.0], "bn")],
)
def test_sn_with_one_logit_far_ahead_is_that_norm_with_the_unbiased_variance(logits, expected):
    layer = SwitchNorm(8, eps=0.0)
    with torch.no_grad():
        layer.mean_logits.copy_(torch.tensor(logits))
        layer.var_logits.copy_(torch.tensor(logits))
    mean_in, var_in = X.mean((2, 3), keepdim=True), X.var((2, 3), keepdim=True)
    axis = {"in": None, "ln": 1, "bn": 0}[expected]
    mean, variance = mean_in, var_in
    if axis is not None:
        mean = mean_in.mean(axis, keepdim=True)
        variance = (var_in + mean_in**2).mean(axis, keepdim=True) - mean**2
    torch.testing.assert_close(layer(X), (X - mean) / variance.sqrt(), rtol=1e-4, atol=1e-4)


def test_sn_starts_with_equal_weights():
    layer = SwitchNorm(8)
    torch.testing.assert_close(torch.softmax(layer.mean_logits, 0), torch.full((3,), 1 / 3))


def test_bin_starts_as_batch_norm_and_ends_as_instance_norm():
    layer = BatchInstanceNorm(8)
    torch.testing.assert_close(layer(X), nn.BatchNorm2d(8)(X), rtol=1e-4, atol=1e-5)
    nn.init.zeros_(layer.gate)
    torch.testing.assert_close(layer(X), nn.InstanceNorm2d(8)(X), rtol=1e-4, atol=1e-5)


def test_bin_gates_are_clamped_and_can_come_back():
    layer = BatchInstanceNorm(8)
    optimizer = torch.optim.SGD([layer.gate], lr=1.0)
    with torch.no_grad():
        layer.gate.fill_(3.0)
    layer.eval()
    torch.testing.assert_close(layer(X), BatchInstanceNorm(8).eval()(X))  # 3 counts as 1
    layer.train()
    (layer(X) * nn.InstanceNorm2d(8)(X)).sum().neg().backward()
    assert layer.gate.max() == 1.0
    assert (layer.gate.grad != 0).all()  # a gate at its bound still learns
    optimizer.step()
    layer(X)
    assert ((layer.gate >= 0) & (layer.gate <= 1)).all()


def test_a_penalty_on_the_gate_may_be_taken_before_the_forward():
    layer = BatchInstanceNorm(8)
    penalty = layer.gate.square().sum()
    (layer(X).square().sum() + penalty).backward()
    assert layer.gate.grad.isfinite().all()
