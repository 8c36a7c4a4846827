"""Normalization by given statistics, and its gradient."""

import pytest
import torch
import torch.nn.functional as F

from asrnorm import ops
from asrnorm.norms import BatchNorm, functional

SHAPES = [(4, 8, 5, 3), (2, 3), (3, 6, 7), (2, 4, 2, 3, 2)]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A CPU takes PyTorch's gradient; here it takes the other."""
    if request.param == "cpu":
        monkeypatch.setattr(
            functional,
            "_wants_gradient_of_input_alone",
            lambda x, *others: x.requires_grad and not any(o.requires_grad for o in others),
        )
    return request.param


def values(shape, device, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 1
    mean, variance, gain, bias = torch.rand(4, shape[1], generator=generator, dtype=torch.float64) * 2
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return x.to(device, dtype), *(part.to(device, wide) for part in (mean, variance + 0.1, gain - 1, bias))


def by_its_own_gradient(x, *given):
    y = ops.fixed_norm(x, *given, 1e-3)
    assert "_FixedNorm" in type(y.grad_fn).__name__
    return y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradient_are_pytorch_s(shape, device):
    x, *given = values(shape, device)
    x.requires_grad_()
    slope = torch.rand_like(x)
    y, wanted = by_its_own_gradient(x, *given), F.batch_norm(x, *given, False, 0.0, 1e-3)
    assert torch.equal(y, wanted)
    (found,), (true,) = (torch.autograd.grad(out, x, slope) for out in (y, wanted))
    torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_of_the_equation(device):
    x, mean, variance, gain, bias = values((3, 4, 2, 2), device)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda image: by_its_own_gradient(image, mean, variance, gain, bias), (x,))
    assert torch.autograd.gradgradcheck(
        lambda image: by_its_own_gradient(image, mean, variance, gain, bias).square(), (x,)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_types_and_channels_last_stay(dtype, device):
    x, *given = values((4, 8, 5, 3), device, dtype)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    y = by_its_own_gradient(x, *given)
    slope = torch.rand_like(y)
    (found,) = torch.autograd.grad(y, x, slope)
    (true,) = torch.autograd.grad(F.batch_norm(x, *given, False, 0.0, 1e-3), x, slope)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)
    tolerance = 8e-3 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(found, true, rtol=tolerance, atol=tolerance)


def test_a_gain_whose_gradient_is_wanted_gets_it(device):
    x, mean, variance, gain, bias = values((4, 8, 5, 3), device)
    x.requires_grad_()
    gain.requires_grad_()
    y = ops.fixed_norm(x, mean, variance, gain, bias, 1e-3)
    assert "_FixedNorm" not in type(y.grad_fn).__name__
    y.square().sum().backward()
    assert gain.grad is not None
    assert gain.grad.abs().min() > 0


def test_changed_statistics_are_noticed_before_a_wrong_gradient(device):
    x, mean, variance, gain, bias = values((4, 8, 5, 3), device)
    y = by_its_own_gradient(x.requires_grad_(), mean, variance, gain, bias)
    variance.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_layer_in_evaluation_takes_it_where_its_parameters_are_held_fixed(device):
    layer = BatchNorm(8).to(device).eval()
    x = torch.rand(2, 8, 3, 3, device=device, requires_grad=True)
    assert "_FixedNorm" not in type(layer(x).grad_fn).__name__
    layer.requires_grad_(False)
    assert "_FixedNorm" in type(layer(x).grad_fn).__name__
    assert "_FixedNorm" not in type(layer.train()(x).grad_fn).__name__


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # PyTorch's own
def test_the_derivative_along_a_direction_is_there_too():
    x, *given = values((2, 3, 2, 2), "cuda")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.requires_grad_(), torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(ops.fixed_norm(dual, *given, 1e-3)).tangent
    factor = given[2] / (given[1] + 1e-3).sqrt()
    torch.testing.assert_close(tangent, factor[:, None, None].expand_as(x))


@pytest.mark.gpu
def test_whoever_asks_for_plain_operations_gets_pytorch_s_gradient():
    x, *given = values((2, 3, 2, 2), "cuda")
    with ops.use_backend("reference"):
        y = ops.fixed_norm(x.requires_grad_(), *given, 1e-3)
    assert "_FixedNorm" not in type(y.grad_fn).__name__


def test_a_cpu_takes_pytorch_s_gradient():
    x, *given = values((2, 3, 2, 2), "cpu")
    assert "_FixedNorm" not in type(ops.fixed_norm(x.requires_grad_(), *given, 1e-3).grad_fn).__name__
