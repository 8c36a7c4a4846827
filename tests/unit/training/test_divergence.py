import pytest
import torch
from torch import nn

from asrnorm.methods import Batch
from asrnorm.norms import ASRNorm2d
from asrnorm.training.trainer import describe_origin, find_not_finite


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), ASRNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def describe(model, images):
    return describe_origin(model, Batch(images, torch.zeros(2)), lambda: model(images))


def test_the_first_layer_in_order_of_execution_is_named():
    model, images = network(), torch.rand(2, 3, 6, 6)
    model(images)
    assert describe(model, images) == "every layer is finite, the loss alone is not"
    model[1].gamma_bias.data.fill_(3e38)
    model[1].beta_bias.data.fill_(3e38)
    assert describe(model, images) == "the output of layer '1' (ASRNorm2d) went first"
    assert not model[1]._forward_hooks


def test_what_was_bad_before_the_forward_pass_is_said():
    model, images = network(), torch.rand(2, 3, 6, 6)
    model(images)
    assert describe(model, images * float("nan")) == "the images of the batch are not finite"
    model[0].bias.data[1] = float("inf")
    assert describe(model, images) == "the weights '0.bias' are not finite already, from the step before"


def test_running_statistics_count():
    model = nn.BatchNorm2d(3)
    assert find_not_finite(model) is None
    model.running_var[0] = float("nan")
    assert find_not_finite(model) == "the running statistics 'running_var' are"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_value_among_many_is_found(value, dtype):
    model = nn.Sequential(*(nn.Linear(7, 7) for _ in range(9))).to(dtype)
    assert find_not_finite(model) is None
    model[5].bias.data[3] = value
    assert find_not_finite(model) == "the weights '5.bias' are"


def test_large_values_are_finite_though_their_sum_is_not():
    model = nn.Linear(4, 4)
    model.weight.data.fill_(3e38)
    assert find_not_finite(model) is None


def test_maps_of_one_position_are_pointed_out():
    model, images = nn.Sequential(nn.Conv2d(3, 4, 6), ASRNorm2d(4), nn.Flatten()), torch.rand(2, 3, 6, 6)
    model[1].gamma_bias.data.fill_(3e38)
    model[1].beta_bias.data.fill_(3e38)
    expected = "layer '1' (ASRNorm2d) went first; norm layers with maps of 1x1: 1, the first '1'; use larger images"
    assert describe(model, images) == f"the output of {expected}"
