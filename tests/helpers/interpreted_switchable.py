"""Compare the kernels of switchable normalization with the reference, in Triton's interpreter."""

import copy
import sys

import torch
from torch import Tensor

from asrnorm import ops
from asrnorm.norms import SwitchNormInLn
from helpers.kernel_case import KernelCase, check, run_kernels_on_cpu

CASES = tuple(
    KernelCase(shape, "sn_in_ln", dtype=dtype, layout=layout, shift=shift)
    for shape, dtype, layout, shift in (
        ((3, 12, 4, 6), torch.bfloat16, "channels_last", 1.0),
        ((5, 7, 3, 3), torch.float32, "contiguous", 1.0),
        ((2, 1, 1, 2), torch.float32, "contiguous", 0.0),
        ((1, 9, 5), torch.float32, "contiguous", 30.0),
        ((4, 130, 2, 3), torch.float32, "channels_last", 300.0),
        ((2, 6, 4, 4), torch.float16, "sliced", 1.0),
        ((2, 5, 3, 4), torch.float32, "transposed", 1.0),
    )
)


def outcome(case: KernelCase, backend: str, activation: str | None, device: str = "cpu", double: bool = False):
    """Return output and gradients, with a ReLU or without."""
    layer, (x, dy) = case.layer(device), case.tensors(device)
    if double:
        layer, x, dy = copy.deepcopy(layer).double(), x.double(), dy.double()
    x = x.detach().requires_grad_()
    with ops.use_backend(backend):  # type: ignore[arg-type]
        y = layer(x, activation)
    y.backward(dy)
    return {"y": y.detach(), "x": x.grad, **{name: value.grad for name, value in layer.named_parameters()}}


def compare(case: KernelCase, activation: str | None, device: str = "cpu") -> None:
    """Compare the kernels with the reference in float64."""
    truth = outcome(case, "reference", activation, device, double=True)
    fast = outcome(case, "triton", activation, device)
    check(case, fast, outcome(case, "reference", activation, device), truth)


def frozen(device: str = "cpu") -> None:
    """Check that frozen parameters get no gradient, and leave that of the input unchanged."""
    layer, (x, dy) = CASES[1].layer(device), CASES[1].tensors(device)
    x.requires_grad_()
    with ops.use_backend("triton"):
        (before,) = torch.autograd.grad(layer(x), x, dy)
        layer.requires_grad_(False)
        y = layer(x)
        y.backward(dy)
    assert isinstance(x.grad, Tensor)
    # Without the parameters' part a compiler fuses products and sums differently.
    torch.testing.assert_close(before, x.grad, rtol=1e-5, atol=1e-6)
    assert all(parameter.grad is None for parameter in layer.parameters())


def second_derivatives(device: str = "cpu") -> None:
    """Check that second derivatives, through a ReLU too, are those of the reference, and not zero."""
    found = []
    for backend in ("reference", "triton"):
        layer, (x, dy) = CASES[1].layer(device), CASES[1].tensors(device)
        x.requires_grad_()
        with ops.use_backend(backend):  # type: ignore[arg-type]
            (slope,) = torch.autograd.grad(layer(x, "relu"), x, dy, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *layer.parameters()], allow_unused=True))
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert found[1][0].abs().max() > 0


def strided_parameters(device: str = "cpu") -> None:
    """Check parameters that are not contiguous."""
    layer = SwitchNormInLn(4, device=device)
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, torch.nn.Parameter(torch.randn(2 * len(parameter), device=device)[::2]))
    x, found = torch.randn(2, 4, 3, 3, device=device), []
    for backend in ("reference", "triton"):
        with ops.use_backend(backend):  # type: ignore[arg-type]
            y = layer(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def half_parameters(device: str = "cpu") -> None:
    """Check that gradients have the dtype of their parameters."""
    layer = SwitchNormInLn(4, dtype=torch.bfloat16, device=device)
    with ops.use_backend("triton"):
        layer(torch.randn(2, 4, 3, 3, device=device, dtype=torch.bfloat16)).square().sum().backward()
    assert {parameter.grad.dtype for parameter in layer.parameters()} == {torch.bfloat16}


def main() -> int:
    """Compare all."""
    run_kernels_on_cpu()
    for case in CASES:
        for activation in (None, "relu"):
            compare(case, activation)
    frozen()
    second_derivatives()
    half_parameters()
    strided_parameters()
    return 2 * len(CASES)


if __name__ == "__main__":
    sys.stdout.write(str(main()))
