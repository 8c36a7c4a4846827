import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.methods.rsc import features_and_stage, features_from_stage, find_stage
from asrnorm.models import DigitsConvNet, WideResNet, create_model
from asrnorm.models.base import NormalizedInput


def test_the_stage_is_found_inside_a_wrapper():
    backbone = create_model("resnet18", num_classes=3)
    assert find_stage(NormalizedInput(backbone, (0.5,) * 3, (0.5,) * 3)) is backbone.layer3


def test_a_network_without_stages_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"named layer3 or group2, which DigitsConvNet has not: choose version 'v1'"):
        find_stage(DigitsConvNet(channels=(4, 8), hidden=8))


def test_the_rest_of_the_network_runs_from_the_given_map_and_no_hook_stays():
    model = WideResNet(10, 1).eval()
    images = torch.randn(5, 3, 16, 16)
    maps, stage_map = features_and_stage(model, images)
    assert torch.equal(maps, model.features(images))
    assert torch.equal(stage_map, model.group2(model.group1(model.conv1(images))))
    torch.testing.assert_close(features_from_stage(model, images, stage_map), maps)
    assert not model.group2._forward_hooks


def test_no_hook_stays_after_an_error():
    model = WideResNet(10, 1).eval()
    with pytest.raises(RuntimeError):
        features_and_stage(model, torch.randn(5, 4, 16, 16))
    assert not model.group2._forward_hooks
