"""Limits of ASR-Norm's learned mean: their effect, saving and loading."""

import copy
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asrnorm import ops
from asrnorm.core.errors import InputError
from asrnorm.norms import ARNorm2d, ASNorm2d, ASRNorm2d


def strayed(norm=ASRNorm2d, channels=4, **options):
    """A layer whose learned mean lies far from the sample's."""
    torch.manual_seed(0)
    layer = norm(channels, **options)
    with torch.no_grad():
        layer.mu_decoder.weight.mul_(300)
    return layer


def images(spread=1.0):
    return spread * torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(1)) + 2


@given(st.floats(0, 3), st.floats(0, 3), st.sampled_from([{}, {"residual": False}, {"statistics": "layer"}]))
def test_the_learned_mean_is_at_the_nearer_limit_where_it_was_beyond(below, above, options):
    layer, x = strayed(**options), images()
    free = layer.learned_shift(x).detach()
    layer.confine(torch.full((4,), -below), torch.full((4,), above))
    torch.testing.assert_close(layer.learned_shift(x), free.clamp(-below, above), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", [ASRNorm2d, ASNorm2d])
def test_within_the_limits_the_layer_is_as_before_to_the_bit(norm):
    layer, x = strayed(norm), images()
    with ops.use_backend("reference"):  # which alone knows limits
        before = layer(x)
        layer.confine(torch.full((4,), -1e6), torch.full((4,), 1e6))
        assert torch.equal(layer(x), before)


def test_the_output_is_that_of_the_equation_with_the_confined_mean():
    layer, x = strayed(ASNorm2d), images()
    limit = torch.tensor([0.0, 0.1, 0.5, 1.0])
    layer.confine(-limit, limit)
    mu, sigma = (value[..., None, None] for value in layer.learned_statistics(x))
    mean, std = x.mean((2, 3)), torch.sqrt(x.var((2, 3), correction=0) + layer.eps)
    assert bool(((mu[..., 0, 0] - mean).abs() <= limit * std * (1 + 1e-5) + 1e-6).all())
    torch.testing.assert_close(layer(x), (x - mu) / (sigma + layer.eps))


def test_gradients_hold_with_limits_on_both_sides_of_the_samples():
    layer = strayed(channels=3, stan_ratio=1).double()
    x = images().double()[:2, :3].clone().requires_grad_()
    limit = layer.learned_shift(x).detach().abs().flatten().sort().values[2:4].mean()  # between two, not at a kink
    layer.confine(-limit.expand(3), limit.expand(3))
    at_a_limit = layer.learned_shift(x).abs() > 0.999 * limit
    assert 0 < int(at_a_limit.sum()) < at_a_limit.numel()
    assert torch.autograd.gradcheck(layer, (x,))


def test_limits_travel_with_weights_copies_and_casts():
    layer, x = strayed(), images()
    layer.confine(torch.full((4,), -0.1), torch.full((4,), 0.2))
    expected = layer(x)
    fresh = nn.Sequential(ASRNorm2d(4))
    assert fresh.load_state_dict(nn.Sequential(layer).state_dict())
    assert torch.equal(fresh(x), expected)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    again = ASRNorm2d(4)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(again(x), expected)
    assert {limit.dtype for limit in layer.double().limits} == {torch.float64}


def test_weights_without_limits_set_the_layer_free_and_other_weights_do_not():
    layer = strayed()
    layer.confine(-torch.ones(4), torch.ones(4))
    layer.load_state_dict({}, strict=False)
    assert layer.limits is not None
    layer.load_state_dict(strayed().state_dict())
    assert layer.limits is None
    assert "shift_least" not in layer.state_dict()


def test_set_free_it_is_the_paper_s_layer_again():
    layer, x = strayed(), images()
    before = layer(x)
    layer.confine(torch.zeros(4), torch.zeros(4))
    assert not torch.allclose(layer(x), before)
    layer.confine(None, None)
    assert torch.equal(layer(x), before)


def test_an_exported_program_has_the_limits():
    layer, x = strayed(), images(5.0)
    layer.confine(-torch.ones(4), torch.ones(4))
    program = torch.export.export(layer.eval(), (x,))
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize(
    "limits",
    [
        (torch.ones(4), -torch.ones(4)),
        (-torch.ones(4), torch.full((4,), float("nan"))),
        (-torch.ones(3), torch.ones(3)),
        (-torch.ones(4), None),
    ],
)
def test_invalid_limits_are_rejected_and_the_old_ones_stay(limits):
    layer = strayed()
    layer.confine(-torch.ones(4), torch.ones(4))
    with pytest.raises(InputError):
        layer.confine(*limits)
    assert torch.equal(layer.limits[1], torch.ones(4))


def test_a_layer_that_learns_no_mean_has_none_to_confine():
    with pytest.raises(InputError):
        ARNorm2d(4).confine(-torch.ones(4), torch.ones(4))
    with pytest.raises(InputError):
        ARNorm2d(4).learned_shift(images())


@pytest.mark.parametrize("way", ["set", "loaded"])
def test_limits_of_inference_mode_can_be_trained_through(way):
    layer, confined = strayed(), strayed()
    confined.confine(-torch.ones(4), torch.ones(4))
    with torch.inference_mode():
        if way == "set":
            layer.confine(-torch.ones(4), torch.ones(4))
        else:
            layer.load_state_dict(confined.state_dict())
    x = images(5.0)
    layer(x).sum().backward()
    assert torch.equal(layer(x), confined(x))


def test_a_fresh_start_is_free():
    layer = strayed()
    layer.confine(-torch.ones(4), torch.ones(4))
    layer.reset_parameters()
    assert layer.limits is None


@pytest.mark.parametrize("before", [None, torch.ones(4)])
@pytest.mark.parametrize("strict", [True, False])
def test_weights_with_limits_of_another_shape_are_refused_and_the_own_ones_stay(before, strict):
    layer, other = strayed(), strayed()
    other.confine(-torch.ones(4), torch.ones(4))
    layer.confine(None if before is None else -before, before)
    state = {**other.state_dict(), "shift_least": torch.zeros(9)}
    with pytest.raises(RuntimeError, match="size mismatch for shift_least"):
        layer.load_state_dict(state, strict=strict)
    assert layer.limits is None if before is None else torch.equal(layer.limits[0], -before)


def test_loading_limits_keeps_the_memory_of_those_that_are_there():
    """As a captured graph needs it."""
    layer, other = strayed(), strayed()
    layer.confine(-torch.ones(4), torch.ones(4))
    other.confine(torch.zeros(4), torch.ones(4))
    where = layer.shift_least.data_ptr()
    layer.load_state_dict(other.state_dict())
    assert layer.shift_least.data_ptr() == where
    assert torch.equal(layer.shift_least, torch.zeros(4))


def test_a_layer_pickled_before_there_were_limits_is_free():
    layer = strayed()
    state = {**layer.__dict__, "_buffers": {}}
    old = ASRNorm2d.__new__(ASRNorm2d)
    old.__setstate__(state)
    assert old.limits is None
    assert torch.equal(old(images()), layer(images()))


@pytest.mark.gpu
@pytest.mark.parametrize("norm", [ASRNorm2d, ASNorm2d])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_gpu_confines_as_the_reference(norm, layout):
    layer = strayed(norm, channels=64).cuda()
    x = torch.randn(6, 64, 9, 9, device="cuda").to(memory_format=layout).requires_grad_()
    shifts = layer.learned_shift(x).detach().abs().flatten().sort().values
    limit = shifts[190:192].mean().expand(64)  # between two, not at a kink
    layer.confine(-limit, limit)
    found = {}
    for backend in ("reference", "triton"):
        with ops.use_backend(backend):
            y = layer(x)
            found[backend] = (y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]))
    for slow, fast in zip(*found.values(), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-4 * slow.detach().abs().max().item())
