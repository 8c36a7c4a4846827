"""Learning rate schedules as pure functions of the step, shared by training and by drawn curves."""

import math

from asrnorm.core.config import OptimConfig


def rate_factor(config: OptimConfig, step: int, steps: int, *, waits: bool = False) -> float:
    """Return the learning rate of a step relative to `config.lr`.

    Args:
        config: its `schedule` is `constant`, `cosine` to zero, or `step`; the rate rises linearly over the first
            `warmup_steps`.
        step: counted from 0.
        steps: length of the schedule, warm-up included.
        waits: for parameters that are frozen for `norm_warmup_steps`; their warm-up starts after that.

    Example:
        >>> cosine = OptimConfig(schedule="cosine")
        >>> [round(rate_factor(cosine, step, 4), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        >>> warm = OptimConfig(warmup_steps=3, norm_warmup_steps=2)
        >>> [rate_factor(warm, step, 6) for step in range(6)]
        [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        >>> [rate_factor(warm, step, 6, waits=True) for step in range(6)]
        [0.0, 0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return _warm_up(config, step - config.norm_warmup_steps if waits else step) * _scheduled(config, step, steps)


def _warm_up(config: OptimConfig, moved: int) -> float:
    """Return the warm-up factor after `moved` steps in which the parameter was trained."""
    if moved < 0:
        return 0.0
    return min(1.0, (moved + 1) / (config.warmup_steps + 1))


def _scheduled(config: OptimConfig, step: int, steps: int) -> float:
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * step / steps))
    if config.schedule == "step":
        return config.step_factor if step >= round(config.step_at * steps) else 1.0
    return 1.0
