"""Evaluation mode is borrowed, not taken."""

import pytest
from torch import nn

from asrnorm.methods.mode import evaluating


def test_every_part_gets_its_own_mode_back_also_after_an_error():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm2d(2).eval(), nn.Sequential(nn.Dropout().eval(), nn.Dropout()))
    before = [module.training for module in model.modules()]

    def fail():
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert [module.training for module in model.modules()] == before
