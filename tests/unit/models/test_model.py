"""Backbones: their sizes, their parts, every norm in every one of them."""

import math

import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.models import MODELS, WideResNet, create_model
from asrnorm.norms import NormLayer
from helpers.norm_family import ALL

IMAGE_SIZE = {"resnet18": 64, "resnet50": 64}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "norm", "norm_options", "expected"),
    [
        ("digits_convnet", "none", {}, 4_547_466),
        ("digits_convnet", None, {}, 4_547_466),
        ("digits_convnet", "asr", {}, 4_583_290),
        ("wrn_40_4", "bn", {}, 8_949_210),
        ("wrn_40_4", "asr", {}, 10_716_141),
        ("wrn_40_4", "asr", {"bias": False}, 10_691_540),
        ("wrn_16_4", "bn", {}, 2_748_890),
        ("wrn_40_2", "bn", {}, 2_243_546),
    ],
)
def test_parameter_counts(name, norm, norm_options, expected):
    assert count(asrnorm.create_model(name, norm=norm, norm_options=norm_options, num_classes=10)) == expected


@pytest.mark.parametrize(
    ("layers", "stan_ratio", "exact", "in_the_paper"),
    [
        ("resnet-12", 16, 11_637_087, 11.64),
        ("resnet-12", 8, 11_832_927, 11.83),
        ("resnet-12", 2, 13_007_967, 13.01),
        ("resnet-12b", 2, 13_007_967, 13.01),
        ("first", 2, 11_187_273, 11.19),
        ("stages", 2, 11_796_561, 11.80),
    ],
)
def test_the_parameter_table_of_the_paper(layers, stan_ratio, exact, in_the_paper):
    model = asrnorm.create_model("resnet18", num_classes=7)
    assert count(model) == 11_180_103
    options = {"bias": False, "share_rescale_encoder": False, "stan_ratio": stan_ratio}
    asrnorm.convert(model, "asr", layers=layers, **options)
    assert count(model) == exact
    assert round(exact / 1e6, 2) == in_the_paper


@pytest.mark.parametrize(
    ("name", "norms"), [("digits_convnet", 2), ("wrn_40_4", 37), ("resnet18", 20), ("resnet50", 53)]
)
def test_number_of_norm_layers(name, norms):
    model = asrnorm.create_model(name, norm="asr")
    assert sum(isinstance(module, NormLayer) for module in model.modules()) == norms


@pytest.mark.parametrize("name", sorted({*MODELS.names()} - {"timm"}))
def test_forward_is_the_composition_of_the_three_parts(name):
    model = asrnorm.create_model(name, num_classes=5).eval()
    size = IMAGE_SIZE.get(name, 32)
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        maps = model.features(x)
        embedding = model.embed(maps)
        logits = model.classify(embedding)
    assert maps.ndim == 4
    assert embedding.ndim == 2
    assert logits.shape == (2, 5)
    assert torch.equal(model(x), logits)
    assert model.num_classes == 5


def test_shapes_of_the_parts():
    digits = asrnorm.create_model("digits_convnet")
    assert digits.features(torch.zeros(1, 3, 32, 32)).shape == (1, 128, 5, 5)
    assert digits.embed(torch.zeros(1, 128, 5, 5)).shape == (1, 1024)
    wide = asrnorm.create_model("wrn_16_4")
    assert wide.features(torch.zeros(1, 3, 32, 32)).shape == (1, 256, 8, 8)
    residual = asrnorm.create_model("resnet18").eval()
    assert residual.features(torch.zeros(1, 3, 222, 222)).shape == (1, 512, 7, 7)  # PACS: 222, AvgPool2d(7)


@pytest.mark.parametrize("norm", ALL)
def test_every_norm_trains_a_network(norm):
    # Without a norm at all a network this deep and wide is still small enough for one step.
    model = WideResNet(10, 1, norm_layer=lambda width: asrnorm.create_norm(norm, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))
    losses = []
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["digits_convnet", "resnet18", "wrn_16_4"])
def test_a_network_has_a_class_at_least(name):
    with pytest.raises(InputError, match=f"{name}: num_classes must be at least 1, not 0"):
        asrnorm.create_model(name, num_classes=0)


def test_wrong_names_are_answered_with_the_right_ones():
    with pytest.raises(UnknownNameError, match="unknown model 'wrn_40_5'; did you mean 'wrn_40_"):
        asrnorm.create_model("wrn_40_5")
    with pytest.raises(UnknownNameError, match="did you mean 'num_classes'"):
        asrnorm.create_model("resnet18", num_clases=7)
    with pytest.raises(UnknownNameError, match="did you mean 'asr'"):
        asrnorm.create_model("resnet18", norm="asrr")
    with pytest.raises(UnknownNameError, match="did you mean 'bias'"):
        asrnorm.create_model("resnet18", norm="asr", norm_options={"bais": False})


@pytest.mark.parametrize("name", ["wrn_16_4", "resnet18"])
def test_convolutions_start_with_the_variance_of_their_outputs_fan(name):
    torch.manual_seed(0)
    model = create_model(name, num_classes=7)
    widening = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Conv2d) and module.out_channels == 2 * module.in_channels
    ]
    assert widening
    for layer in widening:
        fan_out = layer.out_channels * math.prod(layer.kernel_size)
        assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / fan_out), rel=0.05)
