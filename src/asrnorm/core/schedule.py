"""Learning rate schedules as pure functions of the step, shared by training and by drawn curves."""

import math

from asrnorm.core.config import OptimConfig


def rate_factor(config: OptimConfig, step: int, steps: int, *, waits: bool = False) -> float:
    """Return the learning rate of a step, counted from 0, relative to `config.lr`; `steps` include the warm-up.

    `waits` is for parameters that are frozen for `norm_warmup_steps`; their warm-up starts after that.
    """
    trained = step - config.norm_warmup_steps if waits else step
    factor = 1.0
    if config.schedule == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * step / steps))
    elif config.schedule == "step":
        factor = config.step_factor ** sum(step >= round(at * steps) for at in (config.step_at, config.step_again))
    return 0.0 if trained < 0 else min(1.0, (trained + 1) / (config.warmup_steps + 1)) * factor
