"""Adam's kernel in Triton's interpreter beside torch's Adam in float64; a process of its own: it is chosen at import.

Prints the largest relative error of the mean of squares and of the mean of gradients, and the absolute one of
parameters.
"""

import contextlib
import sys

import torch


def main() -> str:
    """Do 200 steps of both."""
    torch.cuda.device = lambda device: contextlib.nullcontext()  # type: ignore[assignment,misc]
    from asrnorm.training.triton.adam import adam_step

    generator = torch.Generator().manual_seed(0)
    mine = torch.randn(1500, generator=generator)
    theirs = mine.double().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=1e-3, weight_decay=0.1)
    mean, square = torch.zeros_like(mine), torch.zeros_like(mine)
    rate, step = torch.tensor([1e-3]), torch.zeros(1)
    for _ in range(200):
        gradient = 3 * torch.randn(1500, generator=generator)
        theirs.grad = gradient.double()
        optimizer.step()
        adam_step(mine, gradient, mean, square, rate, step, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
        step += 1
    state = optimizer.state[theirs]
    squares = ((square - state["exp_avg_sq"]).abs() / state["exp_avg_sq"]).max()
    means = (mean - state["exp_avg"]).norm() / state["exp_avg"].norm()
    return f"{float(squares)} {float(means)} {float((mine - theirs).abs().max())}"


if __name__ == "__main__":
    sys.stdout.write(main())
