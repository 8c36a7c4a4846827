import math

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.models import DigitsConvNet, create_model


@pytest.mark.parametrize("options", [{"hidden": 0}, {"channels": (0, 4)}, {"channels": [4, -1]}], ids=str)
def test_sizes_below_1_are_refused_in_one_line(options):
    with pytest.raises(InputError, match=r"^digits_convnet: sizes must be at least 1, not .*hidden="):
        asrnorm.create_model("digits_convnet", **options)


def test_a_convnet_that_is_made_directly_has_a_class_at_least():
    with pytest.raises(InputError, match=r"^digits_convnet: sizes must be at least 1, not num_classes=0, .*hidden="):
        DigitsConvNet(num_classes=0)


@pytest.mark.parametrize("channels", [3, [4], [4, "x"], "48"], ids=str)
def test_channels_that_are_no_pair_are_refused_in_one_line(channels):
    with pytest.raises(InputError, match=r"option 'channels' .* must be \[int, int\], not "):
        asrnorm.create_model("digits_convnet", channels=channels)


def test_weights_start_as_in_tf_slim():
    model = create_model("digits_convnet")
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 5
    for layer in layers:
        positions = layer.weight[0, 0].numel()
        fans = positions * (layer.weight.shape[0] + layer.weight.shape[1])
        bound = math.sqrt(6 / fans)
        assert 0.98 * bound < float(layer.weight.detach().abs().max()) <= bound * (1 + 1e-6)
        assert not layer.bias.any()


def test_weights_start_as_pytorch_has_them_where_that_is_asked_for():
    torch.manual_seed(0)
    model = create_model("digits_convnet", init="torch", hidden=32)
    torch.manual_seed(0)
    expected = [nn.Conv2d(3, 64, 5), nn.Conv2d(64, 128, 5), nn.Linear(3200, 32), nn.Linear(32, 32), nn.Linear(32, 10)]
    for layer, plain in zip((model.conv1, model.conv2, model.fc1, model.fc2, model.fc3), expected, strict=True):
        assert torch.equal(layer.weight, plain.weight)
        assert torch.equal(layer.bias, plain.bias)


def test_another_initialization_is_refused_with_the_nearest():
    with pytest.raises(
        UnknownNameError, match=r"^unknown initialization of digits_convnet, 'xavir'; did you mean 'xav"
    ):
        create_model("digits_convnet", init="xavir")


def test_norms_keep_their_own_initialization_in_the_convnet():
    model = asrnorm.create_model("digits_convnet", norm="asr")
    assert model.fc1.bias.abs().sum() == 0
    assert model.norm1.stan_encoder.bias.abs().sum() > 0


def test_a_wrong_image_size_is_refused():
    with pytest.raises(InputError, match=r"expected images \(N, 3, 32, 32\), got shape \(1, 3, 28, 28\)"):
        asrnorm.create_model("digits_convnet")(torch.zeros(1, 3, 28, 28))
