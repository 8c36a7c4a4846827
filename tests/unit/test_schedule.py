"""The learning rate of a step: where schedules start, drop and end."""

import pytest

from asrnorm.config import OptimConfig
from asrnorm.schedule import rate_factor


def test_cosine_falls_from_one_to_zero():
    config = OptimConfig(schedule="cosine")
    factors = [rate_factor(config, step, 10) for step in range(11)]
    assert factors == sorted(factors, reverse=True)
    assert (factors[0], factors[5], factors[10]) == pytest.approx((1, 0.5, 0))


def test_the_step_comes_at_its_share_of_the_steps():
    config = OptimConfig(schedule="step", step_at=0.8, step_factor=0.1)
    assert [rate_factor(config, step, 330) for step in (0, 263, 264, 329)] == [1, 1, 0.1, 0.1]


def test_constant_stays():
    assert rate_factor(OptimConfig(), 99, 100) == 1
