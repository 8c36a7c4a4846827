import pytest
from torch import nn

from asrnorm.core.frozen_eval import evaluating, frozen_eval, mixes_samples
from asrnorm.norms import NORMS


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


def test_frozen_eval_turns_gradients_off_and_leaves_frozen_parameters_frozen():
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1).requires_grad_(False), nn.Dropout())
    with frozen_eval(network):
        assert not any(parameter.requires_grad for parameter in network.parameters())
        assert not network[2].training
    assert [parameter.requires_grad for parameter in network.parameters()] == [True, True, False, False]
    assert network[2].training


@pytest.mark.parametrize("norm", NORMS.names())
def test_only_a_norm_that_takes_the_test_batch_mixes_samples(norm):
    network = nn.Sequential(nn.Conv2d(3, 4, 1), NORMS[norm](4))
    assert mixes_samples(network) == (norm == "bn_test")
    assert network.training
