"""The learning rate of a step: where schedules start, drop and end."""

import pytest

from asrnorm.core.config import OptimConfig
from asrnorm.core.schedule import rate_factor


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


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_warm_up_rises_in_equal_parts_to_the_schedule(schedule):
    plain, warm = (OptimConfig(schedule=schedule, warmup_steps=count) for count in (0, 4))
    shares = [rate_factor(warm, step, 20) / rate_factor(plain, step, 20) for step in range(20)]
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8] + [1.0] * 16)


def test_what_waits_stands_still_and_is_warmed_up_after_that():
    config = OptimConfig(schedule="step", step_at=0.5, step_factor=0.1, warmup_steps=1, norm_warmup_steps=3)
    assert [rate_factor(config, step, 10, waits=True) for step in range(6)] == [0, 0, 0, 0.5, 1, 0.1]
    assert [rate_factor(config, step, 10) for step in range(6)] == [0.5, 1, 1, 1, 1, 0.1]


def test_the_step_comes_at_the_nearest_whole_step_to_its_share():
    step = OptimConfig(schedule="step", step_at=0.29)  # 0.29 * 100 is a little less than 29
    assert [rate_factor(step, at, 100) for at in (28, 29)] == [1.0, 0.1]


def test_the_warm_up_is_a_part_of_the_schedule_and_does_not_put_it_off():
    warm, plain = OptimConfig(schedule="cosine", warmup_steps=3), OptimConfig(schedule="cosine")
    factors = [rate_factor(warm, step, 8) / rate_factor(plain, step, 8) for step in range(8)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1])
