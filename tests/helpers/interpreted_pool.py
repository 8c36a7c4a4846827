"""The pooling kernels in Triton's interpreter beside PyTorch's; a process of its own: it is chosen at import.

Prints how many cases were compared.
"""

import sys

import torch
import torch.nn.functional as F

SHAPES = ((2, 3, 4, 6), (1, 5, 2, 2), (3, 4, 10, 10), (2, 7, 8, 4), (0, 3, 4, 4))
LAYOUTS = (torch.contiguous_format, torch.channels_last)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def compare(shape: tuple[int, ...], layout: torch.memory_format, dtype: torch.dtype, device: str = "cpu") -> None:
    """Check outputs and gradients to the bit, with equal values and NaN among the inputs."""
    from asrnorm.kernels.pool import max_pool

    generator = torch.Generator().manual_seed(0)
    values = torch.randint(-2, 3, shape, generator=generator).to(dtype)  # few, so that many are equal
    if values.numel() > 8:
        values.view(-1)[[3, 5, 8]] = float("nan")
    x = values.to(device).contiguous(memory_format=layout)
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))
    pooled, wanted = max_pool(mine), F.max_pool2d(theirs, 2)
    torch.testing.assert_close(pooled, wanted, rtol=0, atol=0, equal_nan=True)
    assert not pooled.numel() or pooled.is_contiguous(memory_format=layout)
    dy = torch.randn(wanted.shape, generator=generator).to(device, dtype)
    pooled.backward(dy)
    wanted.backward(dy)
    assert mine.grad is not None
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=0)


def second_derivative(device: str = "cpu") -> None:
    """Check that a gradient of the gradient flows as PyTorch's does."""
    from asrnorm.kernels.pool import max_pool

    found = []
    for pool in (max_pool, lambda x: F.max_pool2d(x, 2)):
        x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
        (slope,) = torch.autograd.grad(pool(x.square()).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(*found)
    assert found[0].abs().max() > 0


def main() -> int:
    """Compare all."""
    cases = [(shape, layout, dtype) for shape in SHAPES for layout in LAYOUTS for dtype in DTYPES]
    for case in cases:
        compare(*case)
    second_derivative()
    return len(cases)


if __name__ == "__main__":
    sys.stdout.write(str(main()))
