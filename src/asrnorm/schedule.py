"""The learning rate as a function of the step alone, so that a resumed run and a drawn curve have the same one."""

import math

from asrnorm.config import OptimConfig


def rate_factor(config: OptimConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step over `config.lr`.

    Args:
        config: its `schedule` is `constant`, `cosine` to zero, or `step`.
        step: counted from 0.
        steps: of the whole schedule.

    Example:
        >>> cosine = OptimConfig(schedule="cosine")
        >>> [round(rate_factor(cosine, step, 4), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * step / steps))
    if config.schedule == "step":
        return config.step_factor if step >= round(config.step_at * steps) else 1.0
    return 1.0
