"""Adam's kernel in Triton's interpreter beside torch's Adam in float64; a process of its own: it is chosen at import.

Prints the largest relative error of the mean of squares and of the mean of gradients, and the absolute one of
parameters.
"""

import contextlib
import sys

import torch


def main() -> str:
    """Do 100 steps of both, on three tensors."""
    torch.cuda.device = lambda device: contextlib.nullcontext()  # type: ignore[assignment,misc]
    from asrnorm.kernels.adam import adam_steps

    generator = torch.Generator().manual_seed(0)
    mine = [torch.randn(size, generator=generator) for size in (1500, 7, 1024)]
    theirs = [one.double().requires_grad_() for one in mine]
    optimizer = torch.optim.Adam(theirs, lr=1e-3, weight_decay=0.1)
    means, squares = ([torch.zeros_like(one) for one in mine] for _ in range(2))
    rate, steps = torch.tensor([1e-3]), [torch.zeros(1) for _ in mine]
    for _ in range(100):
        gradients = [3 * torch.randn(one.shape, generator=generator) for one in mine]
        for one, gradient in zip(theirs, gradients, strict=True):
            one.grad = gradient.double()
        optimizer.step()
        adam_steps(mine, gradients, means, squares, steps, rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
        torch._foreach_add_(steps, 1)
    states = [optimizer.state[one] for one in theirs]
    exact = [torch.cat([state[name] for state in states]) for name in ("exp_avg_sq", "exp_avg")]
    square, mean = torch.cat(squares), torch.cat(means)
    square_error = ((square - exact[0]).abs() / exact[0]).max()
    mean_error = (mean - exact[1]).norm() / exact[1].norm()
    error = (torch.cat(mine) - torch.cat(theirs)).abs().max()
    return f"{float(square_error)} {float(mean_error)} {float(error)}"


if __name__ == "__main__":
    sys.stdout.write(main())
