"""Computes the curve of a lambda under weight decay alone, the baseline of every figure of lambdas.

A lambda is the sigmoid of a logit that starts at -3. Weight decay pulls the logit towards 0, and so the lambda towards
.5, whatever the loss. This module runs the optimizer's recursion on a parameter whose gradient is always zero.
"""

import math
from collections.abc import Iterator, Sequence

from asrnorm.core.config import OptimConfig, RunConfig
from asrnorm.core.schedule import rate_factor

START = {"lambda_mu": -3.0, "lambda_sigma": -3.0, "lambda_beta": -5.0, "lambda_gamma": -5.0}


def decay_logit(config: OptimConfig, steps: int, start: float) -> Iterator[float]:
    r"""Yield the logit before the first step and after each step of the whole schedule, with a loss gradient of zero.

    SGD: $v \leftarrow m v + w\theta$, $\theta \leftarrow \theta - \eta_t v$, or $\eta_t (w\theta + m v)$ with
    Nesterov; Adam's decay is part of its gradient too. Both as in PyTorch.
    """
    logit = start
    decay = config.weight_decay if config.decay_lambdas else 0.0
    yield logit
    velocity = square = 0.0
    for step in range(steps):
        rate = config.lr * config.lambda_lr * rate_factor(config, step, steps)
        gradient = decay * logit
        if config.name == "adam":
            first, second = 0.9, 0.999  # PyTorch's, which configs do not change
            velocity = first * velocity + (1 - first) * gradient
            square = second * square + (1 - second) * gradient**2
            spread = math.sqrt(square / (1 - second ** (step + 1)))
            logit -= rate * velocity / (1 - first ** (step + 1)) / (spread + 1e-8)
        else:
            velocity = config.momentum * velocity + gradient
            logit -= rate * (gradient + config.momentum * velocity if config.nesterov else velocity)
        yield logit


def decay_curve(config: RunConfig, name: str, steps: Sequence[int]) -> tuple[float, ...]:
    """Return the lambda of this name (a key of `START`) under weight decay alone at ascending steps, counted from 0.

    Example:
        >>> from asrnorm.recipes import recipe
        >>> [round(value, 3) for value in decay_curve(recipe("cifar10c.erm_asr"), "lambda_mu", [0, 3910, 78200])]
        [0.047, 0.395, 0.5]
    """
    option = "lambda_init" if name in ("lambda_mu", "lambda_sigma") else "gate_init"
    start = float(config.norm.args.get(option, START[name]))
    wanted = set(steps)
    found = {}
    for step, logit in enumerate(decay_logit(config.optim, config.steps, start)):
        if step in wanted:
            found[step] = 1 / (1 + math.exp(-logit))
        if len(found) == len(wanted):
            break
    return tuple(found[step] for step in steps)
