"""The eager function for CPUs against the reference: outputs, both derivatives, and the calls it leaves alone."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, vmap

from asrnorm import ops
from asrnorm.kernels import cpu
from asrnorm.norms import ASRNorm2d

OPTIONS = {
    "default": {},
    "gated": {"gated_rescale": True},
    "as": {"rescale": False},
    "ar": {"standardize": False},
    "neither": {"rescale": False, "standardize": False},
    "without residual": {"residual": False},
    "without biases": {"bias": False},
    "lambdas of channels": {"per_channel_lambda": True, "gated_rescale": True, "activation": "relu"},
}


def make(shape=(3, 8, 5, 4), dtype=torch.float64, **options):
    torch.manual_seed(0)
    layer = ASRNorm2d(shape[1], **options, dtype=dtype)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = (torch.randn(shape, dtype=dtype) * 2 + 3).requires_grad_()
    return layer, x, torch.randn(shape, dtype=dtype)


def is_taken(y):
    names, nodes = set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        names.add(type(node).__name__)
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    return "_ASRNormBackward" in names


def derivatives(layer, x, dy, *, backend="auto", second=False):
    with ops.use_backend(backend):
        inputs = [x, *layer.parameters()]
        y = layer(x)
        assert is_taken(y) == (backend == "auto")
        first = torch.autograd.grad(y, inputs, dy, create_graph=second)
        if not second:
            return [y, *first]
        return torch.autograd.grad(sum(value.square().sum() for value in first), inputs, materialize_grads=True)


@pytest.mark.parametrize("shape", [(3, 8, 5, 4), (1, 8, 7), (2, 8, 2, 3, 2), (4, 8, 1, 5)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_computes_what_the_reference_does(options, shape):
    case = make(shape, **options)
    expected = derivatives(*case, backend="reference")
    for found, value in zip(derivatives(*case), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_is_differentiable_twice(options):
    case = make((2, 4, 3, 2), **options)
    expected = derivatives(*case, backend="reference", second=True)
    for found, value in zip(derivatives(*case, second=True), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-6, atol=1e-6)


def test_gradients_against_finite_differences():
    layer, x, _ = make((2, 2, 3, 1), gated_rescale=True)
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *layer.parameters()))
    assert torch.autograd.gradgradcheck(function, (x, *layer.parameters()), atol=1e-4)


@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (0.0, 1e3), (1e3, 1e3), (1e1, 1.0), (1e3, 1e2)])
def test_it_is_as_exact_as_the_reference(offset, scale):
    layer, x, dy = make((2, 8, 16, 16), torch.float32)
    x = (x.detach() * scale + offset).requires_grad_()
    exact = copy.deepcopy(layer).double(), x.detach().double().requires_grad_(), dy.double()
    truth = derivatives(*exact, backend="reference")
    ours, theirs = derivatives(layer, x, dy), derivatives(layer, x, dy, backend="reference")
    for value, found, plain in zip(truth, ours, theirs, strict=True):
        error, allowed = ((part - value).abs().max() / value.abs().max().clamp(min=1e-6) for part in (found, plain))
        assert error <= 3 * allowed + 1e-6


def test_two_encoders_are_left_to_the_reference():
    layer, x, _ = make(share_rescale_encoder=False)
    assert not is_taken(layer(x))


@pytest.mark.parametrize("case", ["constant", "far", "huge"])
def test_extreme_statistics_are_left_to_the_reference(case):
    layer, x, _ = make((2, 8, 16, 16), torch.float32)
    x = {"constant": torch.ones_like(x), "far": x + 1e6, "huge": x * 1e30}[case]
    y = layer(x)
    assert not is_taken(y)
    with ops.use_backend("reference"):
        torch.testing.assert_close(y, layer(x), rtol=0, atol=0, equal_nan=True)


def test_gradients_add_up_and_a_graph_may_be_kept():
    layer, x, dy = make()
    y = layer(x)
    y.backward(dy, retain_graph=True)
    once = layer.gamma_bias.grad.clone()
    y.backward(dy)
    torch.testing.assert_close(layer.gamma_bias.grad, 2 * once)


def test_a_weight_changed_before_the_backward_pass_is_an_error():
    layer, x, dy = make()
    y = layer(x)
    with torch.no_grad():
        layer.mu_decoder.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)


def test_gradients_of_any_layout():
    layer, x, dy = make()
    outcomes = []
    for given in (dy, dy.contiguous(memory_format=torch.channels_last), torch.ones(()).expand_as(dy).double()):
        outcomes.append(torch.autograd.grad(layer(x), x, given)[0])
    torch.testing.assert_close(outcomes[0], outcomes[1])
    torch.testing.assert_close(outcomes[2], torch.autograd.grad(layer(x).sum(), x)[0])


def test_frozen_parts_get_no_gradient():
    layer, x, dy = make()
    layer.stan_encoder.requires_grad_(False)
    layer(x.detach()).backward(dy)
    assert layer.stan_encoder.weight.grad is None
    assert layer.mu_decoder.weight.grad is not None


@pytest.mark.parametrize("change", [lambda x: x.half(), lambda x: x.contiguous(memory_format=torch.channels_last)])
def test_inputs_that_stay_with_the_reference(change):
    layer, x, _ = make(dtype=torch.float32)
    y = layer(change(x))
    assert not is_taken(y)
    assert y.dtype == change(x).dtype
    assert y.stride() == change(x).stride()


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # raised while torch imports jvp
def test_transforms_stay_with_the_reference(monkeypatch):
    monkeypatch.setattr(cpu._ASRNorm, "forward", lambda *arguments: pytest.fail("it was called"))
    layer, x, dy = make()
    x = x.detach()
    vmap(layer)(x[:, None])
    grad(lambda x: layer(x).sum())(x)
    torch.func.jvp(layer, (x,), (dy,))
    torch.export.export(layer, (x,), strict=False)
    torch.compile(layer, backend="eager", fullgraph=True)(x)
