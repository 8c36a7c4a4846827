"""The kernels for convolutions in Triton's interpreter beside PyTorch's; a process of its own.

Prints how many cases were compared.
"""

import sys
from itertools import product

import torch
import torch.nn.functional as F

# Maps, then output channels and the sides of the kernel.
SHAPES = (
    ((2, 3, 9, 8), (8, 5, 5)),
    ((1, 1, 4, 4), (3, 4, 4)),
    ((3, 3, 6, 7), (20, 3, 2)),
    ((2, 4, 5, 5), (17, 1, 5)),
    ((5, 3, 32, 32), (64, 5, 5)),
    ((3, 14, 6, 6), (20, 3, 3)),
)
LAYOUTS = (torch.contiguous_format, torch.channels_last)


def compare(
    images: tuple[int, int, int, int],
    kernel: tuple[int, int, int],
    layouts: tuple[torch.memory_format, torch.memory_format],
    has_bias: bool,
    device: str = "cpu",
    tolerance: float = 1e-5,
) -> None:
    """Check output and gradients against float64, relative to the largest."""
    from asrnorm.kernels.convolve import convolve

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, generator=generator).to(device).contiguous(memory_format=layouts[0])
    weight = torch.randn(kernel[0], images[1], *kernel[1:], generator=generator).to(device)
    weight = weight.contiguous(memory_format=layouts[1])
    bias = torch.randn(kernel[0], generator=generator).to(device) if has_bias else None
    given = [x, weight, *([] if bias is None else [bias])]
    mine = [tensor.clone().requires_grad_() for tensor in given]
    theirs = [tensor.double().requires_grad_() for tensor in given]
    found = convolve(mine[0], mine[1], mine[2] if has_bias else None)
    wanted = F.conv2d(theirs[0], theirs[1], theirs[2] if has_bias else None)
    assert found.is_contiguous(memory_format=torch.channels_last)
    dy = torch.randn(wanted.shape, generator=generator).to(device)
    slopes = torch.autograd.grad(found, mine, dy)
    truth = torch.autograd.grad(wanted, theirs, dy.double())
    for a, b in zip((found, *slopes), (wanted, *truth), strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * b.abs().max(), (images, kernel, layouts, a.shape)


def second_derivative(device: str = "cpu", tolerance: float = 1e-5) -> None:
    """Check that a gradient of the gradient flows as PyTorch's does."""
    from asrnorm.kernels.convolve import convolve

    found = []
    for convolution, dtype in ((convolve, torch.float32), (F.conv2d, torch.float64)):
        generator = torch.Generator().manual_seed(1)
        x, weight, bias = (
            torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()
            for shape in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))
        )
        outputs = convolution(x, weight, bias)
        slopes = torch.autograd.grad(outputs.square().sum(), [x, weight, bias], create_graph=True)
        again = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), [x, weight, bias])
        found.append([tensor.double() for tensor in again])
    for a, b in zip(*found, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= tolerance * b.abs().max()


def main() -> int:
    """Compare all."""
    cases = list(product(SHAPES, product(LAYOUTS, LAYOUTS), (True, False)))
    for (images, kernel), layouts, has_bias in cases:
        compare(images, kernel, layouts, has_bias)
    second_derivative()
    return len(cases)


if __name__ == "__main__":
    sys.stdout.write(str(main()))
