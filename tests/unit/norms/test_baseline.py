"""The baselines against PyTorch's own layers, and what only they do."""

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm.errors import InputError, InputTypeError
from asrnorm.norms import (
    NORMS,
    BatchInstanceNorm,
    BatchNorm,
    BatchNormTest,
    DomainBatchNorm,
    GroupNorm,
    ILMNorm,
    InstanceNorm,
    LayerNorm,
    SwitchNorm,
    create_norm,
    set_domain,
)
from asrnorm.norms.base import weigh_newest

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (BatchNorm(8), nn.BatchNorm2d(8)),
        (InstanceNorm(8), nn.InstanceNorm2d(8)),
        (GroupNorm(8, num_groups=2), nn.GroupNorm(2, 8)),
        (LayerNorm(8), nn.GroupNorm(1, 8)),
    ],
    ids=["bn", "in", "gn", "ln"],
)
def test_equal_to_pytorch(ours, theirs):
    for _ in range(2):
        torch.testing.assert_close(ours(X), theirs(X))
    torch.testing.assert_close(ours.eval()(X), theirs.eval()(X))


def test_layer_norm_is_pytorchs_over_channels_and_positions():
    torch.testing.assert_close(LayerNorm(8)(X), nn.LayerNorm([8, 5, 4])(X))


def test_bn_test_uses_the_batch_in_evaluation_and_does_not_track_it():
    layer = BatchNormTest(8)
    layer(X)
    layer.eval()
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    shifted = 10 + 5 * X
    torch.testing.assert_close(layer(shifted), nn.BatchNorm2d(8)(shifted))
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())


def test_bn_test_takes_the_state_of_bn():
    trained = BatchNorm(8)
    trained(X)
    layer = BatchNormTest(8)
    layer.load_state_dict(trained.state_dict())
    assert torch.equal(layer.running_mean, trained.running_mean)


def test_dsbn_normalizes_each_sample_by_its_domain():
    layer = DomainBatchNorm(8, num_domains=2)
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    assert set_domain(nn.Sequential(layer), labels) == 1
    y = layer(X)
    for domain in (0, 1):
        torch.testing.assert_close(y[labels == domain], nn.BatchNorm2d(8)(X[labels == domain]))
    set_domain(layer, 1)
    layer.eval()
    torch.testing.assert_close(layer(X), layer.domains[1](X))


def test_dsbn_gradients_reach_samples_of_all_domains():
    layer = DomainBatchNorm(8, num_domains=3)
    set_domain(layer, torch.tensor([0, 1, 1, 0, 2, 2]))
    x = X.clone().requires_grad_()
    layer(x).square().sum().backward()
    assert (x.grad.flatten(1).abs().sum(1) > 0).all()


def test_dsbn_refuses_domains_it_lacks():
    layer = DomainBatchNorm(8, num_domains=2)
    with pytest.raises(InputError, match=r"no domain 2, it has 2 \(0 to 1\)"):
        set_domain(layer, 2)
    with pytest.raises(InputError, match="no domain -1"):
        set_domain(layer, torch.tensor([0, -1]))
    with pytest.raises(InputError, match="has no dsbn layer"):
        set_domain(nn.ReLU(), 0)
    set_domain(layer, torch.tensor([0, 1]))
    with pytest.raises(InputError, match="domain labels for a batch of 6"):
        layer(X)
    with pytest.raises(InputError, match="num_domains must be at least 1"):
        DomainBatchNorm(8, num_domains=0)


def test_group_norm_falls_back_to_a_divisor():
    assert GroupNorm(8).num_groups == 8
    assert GroupNorm(48).num_groups == 24
    assert GroupNorm(7, num_groups=4).num_groups == 1
    with pytest.raises(InputError, match="num_groups must be at least 1"):
        GroupNorm(8, num_groups=0)


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


def test_ilm_sizes_follow_its_authors():
    assert ILMNorm(64).encoder.weight.shape == (2, 4)
    assert ILMNorm(512).encoder.weight.shape == (2, 32)
    assert ILMNorm(1024).encoder.weight.shape == (4, 64)
    assert ILMNorm(24).group_size == 12
    assert sum(p.numel() for p in ILMNorm(64).parameters()) == 2 * 4 * 3 + 128
    with pytest.raises(InputError, match="must be at least 1"):
        ILMNorm(8, group_size=0)


def test_ilm_gain_is_shared_in_a_key_group():
    layer = ILMNorm(32)
    x = torch.randn(2, 32, 6, 6)
    gain = (layer(x).amax((2, 3)) - layer(x).amin((2, 3))) / (x.amax((2, 3)) - x.amin((2, 3))) * x.std((2, 3))
    torch.testing.assert_close(gain[:, :16], gain[:, :1].expand(2, 16), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(gain[:, 16:], gain[:, 16:17].expand(2, 16), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["bn", "bn_test", "sn", "bin"])
def test_without_momentum_all_batches_weigh_the_same(name):
    torch.manual_seed(0)
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    model = nn.Sequential(create_norm(name, 3, momentum=None))
    for batch in data:
        model(batch)
    torch.testing.assert_close(model[0].running_mean, torch.stack(data).mean((0, 1, 3, 4)))
    variance = torch.stack([batch.var((0, 2, 3)) for batch in data]).mean(0)
    torch.testing.assert_close(model[0].running_var, variance, rtol=0.05, atol=0)


@pytest.mark.parametrize("name", ["bn", "bn_test", "dsbn"])
def test_averaged_weights_get_the_statistics_that_pytorch_gives(name):
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    ours, theirs = nn.Sequential(create_norm(name, 3)), nn.Sequential(nn.BatchNorm2d(3))
    for model in (ours, theirs):
        torch.optim.swa_utils.update_bn(data, model)
    state = ours[0].domains[0] if name == "dsbn" else ours[0]
    torch.testing.assert_close(state.running_mean, theirs[0].running_mean)
    torch.testing.assert_close(state.running_var, theirs[0].running_var)


@pytest.mark.parametrize("name", sorted(NORMS))
def test_the_usual_loop_resets_every_parameter_and_statistic(name):
    torch.manual_seed(0)
    fresh, used = create_norm(name, 64), create_norm(name, 64)
    with torch.no_grad():
        for value in used.state_dict().values():
            value.fill_(3)
    for module in used.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for key, value in used.state_dict().items():
        drawn = fresh.state_dict()[key].unique().numel() > 1  # of a linear layer
        assert bool((value != 3).all()) if drawn else torch.equal(value, fresh.state_dict()[key]), key


@pytest.mark.parametrize("name", sorted(set(NORMS) - {"bn", "bn_test", "dsbn", "sn", "bin"}))
def test_mapped_over_another_axis(name):
    layer = create_norm(name, 4)
    x = torch.randn(3, 2, 4, 5, 5)
    torch.testing.assert_close(torch.vmap(layer)(x), torch.stack([layer(part) for part in x]))


@pytest.mark.parametrize("domain", [np.int64(1), torch.tensor([1, 1])])
def test_a_domain_may_be_any_whole_number_or_one_for_each_sample(domain):
    layer = create_norm("dsbn", 4, num_domains=2)
    assert set_domain(layer, domain) == 1
    assert layer(torch.randn(2, 4, 3, 3)).shape == (2, 4, 3, 3)


def test_another_kind_of_domain_is_refused():
    with pytest.raises(InputTypeError, match="set_domain takes one number"):
        set_domain(create_norm("dsbn", 4), [0, 1])


@pytest.mark.parametrize(("channels", "hidden"), [(64, 2), (256, 2), (320, 1), (512, 2), (1024, 4)])
def test_the_hidden_units_of_ilm_are_those_of_its_authors(channels, hidden):
    layer = ILMNorm(channels, group_size=16, reduction=16)
    assert layer.encoder.weight.shape == (hidden, channels // 16)


def test_without_momentum_and_without_a_count_nothing_is_tracked():
    assert weigh_newest(None, None) == 0.0
    assert weigh_newest(None, torch.tensor(1)) == 1.0
    assert weigh_newest(0.3, torch.tensor(5)) == 0.3


@pytest.mark.parametrize("name", [name for name in NORMS if name != "dsbn"])
@pytest.mark.parametrize("count", [0, -1, "8", 2.0, True])
def test_a_number_of_channels_that_is_none_is_refused(name, count):
    error, said = (InputError, "at least 1") if type(count) is int else (InputTypeError, "whole number")
    with pytest.raises(error, match=said):
        create_norm(name, count)


def test_a_penalty_on_the_gate_may_be_taken_before_the_forward():
    layer = BatchInstanceNorm(8)
    penalty = layer.gate.square().sum()
    (layer(X).square().sum() + penalty).backward()
    assert layer.gate.grad.isfinite().all()
