import pytest
from torch import nn

from asrnorm.methods.mode import evaluating


def test_every_module_gets_its_own_mode_back():
    network = nn.Sequential(nn.BatchNorm2d(3).eval(), nn.Dropout())
    with evaluating(network):
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == [True, False, True]


def test_the_mode_comes_back_after_an_error():
    layer = nn.Dropout()
    with pytest.raises(KeyError), evaluating(layer):
        raise KeyError
    assert layer.training
