"""One layer computed by the kernels, by the reference at the same precision, and by the reference in float64."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm import ops
from asrnorm.norms import create_norm, dispatch

FLOORS = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative errors of pure rounding: sums that cancel, such as those of a lambda, lose digits in any implementation."""


@dataclass(frozen=True)
class KernelCase:
    """A norm and an input for it.

    Args:
        layout: `contiguous`, `channels_last`, `sliced` (every second channel and column of a larger tensor) or
            `transposed`.
        limit: bound of the learned mean on either side, in standard deviations.
    """

    shape: tuple[int, ...]
    norm: str = "asr"
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    shift: float = 1.0
    seed: int = 0
    limit: float | None = None

    def layer(self, device: str = "cpu") -> nn.Module:
        """Return the layer with weights far from their initial values, so that none is one or zero."""
        generator = torch.Generator().manual_seed(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layer = create_norm(self.norm, self.shape[1], **self.options)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        if self.limit is not None:
            limit = torch.full((self.shape[1],), self.limit)
            layer.confine(-limit, limit)
        return layer.to(device)

    def tensors(self, device: str = "cpu") -> tuple[Tensor, Tensor]:
        """Return input and gradient of the output in the dtype and layout of the case."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        scale = 0.5 + 2 * torch.rand(self.shape[1], generator=generator).reshape(-1, *[1] * (len(self.shape) - 2))
        x = torch.randn(self.shape, generator=generator) * scale + self.shift
        dy = torch.randn(self.shape, generator=generator)
        return self._with_layout(x.to(device, self.dtype)), dy.to(device, self.dtype)

    def _with_layout(self, x: Tensor) -> Tensor:
        if self.layout == "channels_last":
            return x.contiguous(memory_format=torch.channels_last)
        if self.layout == "sliced":
            larger = x.new_zeros(x.shape[0], 2 * x.shape[1], *x.shape[2:-1], 2 * x.shape[-1])
            larger[:, ::2, ..., ::2] = x
            return larger[:, ::2, ..., ::2]
        if self.layout == "transposed":
            return x.transpose(-1, -2).contiguous().transpose(-1, -2)
        return x


def outcome(case: KernelCase, backend: str, device: str = "cpu", double: bool = False) -> dict[str, Tensor]:
    """Return the output and all gradients, by name."""
    layer, (x, dy) = case.layer(device), case.tensors(device)
    if double:
        layer, x, dy = copy.deepcopy(layer).double(), x.double(), dy.double()
    x = x.detach().requires_grad_()
    with ops.use_backend(backend):  # type: ignore[arg-type]
        y = layer(x)
    assert y.dtype == x.dtype
    y.backward(dy)
    grads = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.grad is not None}
    assert x.grad is not None
    return {"y": y.detach(), "x": x.grad, **grads}


def relative(value: Tensor, truth: Tensor, least: float) -> float:
    """Return the error relative to the norm of the truth, or to `least`: some gradients are rounding alone."""
    least = max(least, torch.finfo(value.dtype).tiny)  # all gradients may be zero
    return float((value.double() - truth).norm() / truth.norm().clamp_min(least))


def check(case: KernelCase, fast: dict[str, Tensor], eager: dict[str, Tensor], truth: dict[str, Tensor]) -> None:
    """Check that every error of the kernels is at most twice that of eager PyTorch, or pure rounding."""
    assert fast.keys() == eager.keys() == truth.keys()
    # A small difference of large numbers has lost digits.
    floor = FLOORS[case.dtype] * max(1.0, abs(case.shift) / 10)
    for name in truth:
        assert torch.isfinite(fast[name]).all(), f"{case}: {name} is not finite"
        size = 1e-3 * float(truth["x"].norm())
        mine, theirs = relative(fast[name], truth[name], size), relative(eager[name], truth[name], size)
        # Gradients of parameters are summed in float32, whatever the dtype of the activations.
        least = floor if name in ("y", "x") else max(floor / 4, 2e-5)
        assert mine <= max(2 * theirs, least), f"{case}: {name} is off by {mine:.1e}, eager by {theirs:.1e}"


def check_kernels(case: KernelCase, device: str = "cpu") -> None:
    """Compare the kernels with the reference in float64."""
    truth = outcome(case, "reference", device, double=True)
    check(case, outcome(case, "triton", device), outcome(case, "reference", device), truth)


def run_kernels_on_cpu() -> None:
    """Let dispatch choose the kernels for CPU tensors, which Triton's interpreter can compute."""
    dispatch.load_problem()
    dispatch._why_reference = lambda x: None if x.dtype in dispatch._DTYPES else "float64"  # type: ignore[assignment]
    dispatch.kernel_problem = lambda index=0: None  # type: ignore[assignment]
