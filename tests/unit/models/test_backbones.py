"""The backbones: sizes, parts, initialization, input checks, every norm in them, and input normalization."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError
from asrnorm.models import MODELS, DigitsConvNet, Normalize, WideResNet, create_model
from asrnorm.models.base import NormalizedInput, classifier_head
from asrnorm.models.wideresnet import PreActivationBlock
from asrnorm.norms import BatchNorm, NormLayer
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
    with pytest.raises(InputError):
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


@pytest.mark.parametrize("name", sorted({*MODELS.names()} - {"timm"}))
def test_the_head_of_every_network_gives_its_logits(name):
    model = create_model(name, norm="asr", num_classes=64)  # as many as a norm has channels
    head = classifier_head(NormalizedInput(model, (0.5,) * 3, (0.5,) * 3))
    assert head is list(model.children())[-1]
    assert head.out_features == 64


def test_a_network_without_classes_or_without_a_linear_head_has_none():
    assert classifier_head(nn.Sequential(nn.Linear(3, 3))) is None
    model = nn.Sequential(nn.Conv2d(3, 5, 1))
    model.num_classes = 5
    assert classifier_head(model) is None


@pytest.mark.parametrize("options", [{"hidden": 0}, {"channels": (0, 4)}, {"channels": [4, -1]}], ids=str)
def test_sizes_below_1_are_refused_in_one_line(options):
    with pytest.raises(InputError):
        asrnorm.create_model("digits_convnet", **options)


def test_a_convnet_that_is_made_directly_has_a_class_at_least():
    with pytest.raises(InputError):
        DigitsConvNet(num_classes=0)


@pytest.mark.parametrize("channels", [3, [4], [4, "x"], "48"], ids=str)
def test_channels_that_are_no_pair_are_refused_in_one_line(channels):
    with pytest.raises(InputError):
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
    with pytest.raises(UnknownNameError, match="did you mean 'xavier'"):
        create_model("digits_convnet", init="xavir")


def test_norms_keep_their_own_initialization_in_the_convnet():
    model = asrnorm.create_model("digits_convnet", norm="asr")
    assert model.fc1.bias.abs().sum() == 0
    assert model.norm1.stan_encoder.bias.abs().sum() > 0


def test_a_wrong_image_size_is_refused():
    with pytest.raises(InputError):
        asrnorm.create_model("digits_convnet")(torch.zeros(1, 3, 28, 28))


def test_the_stem_of_a_resnet_pools_by_overlapping_squares_as_that_of_torchvision():
    model = create_model("resnet18", num_classes=7).eval()
    images = torch.rand(1, 3, 66, 66)
    seen = []
    model.layer1.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.features(images)
        stem = F.relu(model.bn1(F.conv2d(images, model.conv1.weight, stride=2, padding=3)))
        torch.testing.assert_close(seen[0], F.max_pool2d(stem, 3, 2, padding=1))


def test_a_wrong_depth_is_refused():
    with pytest.raises(InputError):
        WideResNet(20, 4)


def test_where_the_width_changes_the_shortcut_starts_after_the_first_relu():
    block = PreActivationBlock(4, 6, 2, BatchNorm).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), block.shortcut(torch.relu(block.norm1(x))))
    same = PreActivationBlock(4, 4, 1, BatchNorm).eval()
    torch.nn.init.zeros_(same.conv2.weight)
    torch.testing.assert_close(same(x), x)


def test_it_is_the_backbone_on_normalized_images_part_by_part():
    backbone = asrnorm.create_model("wrn_16_4", num_classes=4).eval()
    model = NormalizedInput(backbone, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)).eval()
    x = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(1, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(model(x), backbone((x - mean) / std))
        torch.testing.assert_close(model.classify(model.embed(model.features(x))), model(x))
    assert model.num_classes == 4


def test_mean_and_deviation_are_part_of_the_state():
    model = NormalizedInput(asrnorm.create_model("wrn_16_4"), (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
    assert model.state_dict()["mean"].flatten().tolist() == torch.tensor([0.4, 0.5, 0.6]).tolist()


def test_a_network_without_parts_is_answered_with_the_layer_that_serves_it():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    with pytest.raises(InputTypeError, match=r"asrnorm\.models\.Normalize"):
        NormalizedInput(network, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
    x = torch.rand(2, 3, 4, 4)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(1, 3, 1, 1)
    normalized = nn.Sequential(Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), network)
    torch.testing.assert_close(normalized(x), network((x - mean) / std))


def test_resnet50_has_torchvisions_number_of_parameters():
    with torch.device("meta"):
        assert count(create_model("resnet50")) == 25_557_032
