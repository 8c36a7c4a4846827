"""Networks of timm: by a stand-in for the library, and by the library itself where it is installed."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.norms import ASRNorm2d


class ToyNet(nn.Module):
    """What timm promises of its networks."""

    def __init__(self, num_classes, flat=False):
        super().__init__()
        self.conv_stem, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        blocks = [nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)) for _ in range(4)]
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(4, num_classes)
        self.flat = flat

    def forward_features(self, x):
        maps = self.blocks(self.bn1(self.conv_stem(x)))
        return maps.flatten(2) if self.flat else maps

    def forward_head(self, maps, pre_logits=False):
        pooled = maps.mean((2, 3))
        return pooled if pre_logits else self.classifier(pooled)

    def get_classifier(self):
        return self.classifier


@pytest.fixture
def toy(monkeypatch):
    def create_model(name, *, pretrained, num_classes):
        assert not pretrained
        if not name.startswith("toy"):
            raise RuntimeError(f"Unknown model ({name})\nand more")
        return ToyNet(num_classes, flat=name == "toy_flat")

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))


def make(**options):
    return asrnorm.create_model("timm", architecture="toy", num_classes=5, **options)


def test_its_three_parts_are_the_network(toy):
    model, x = make().eval(), torch.rand(2, 3, 8, 8)
    whole = model.network.forward_head(model.network.forward_features(x))
    assert torch.equal(model(x), whole)
    assert model.features(x).shape == (2, 4, 6, 6)
    assert model.embed(model.features(x)).shape == (2, 4)


def test_a_norm_stands_everywhere_in_a_fresh_one(toy):
    model = make(norm="asr")
    assert sum(isinstance(module, ASRNorm2d) for module in model.modules()) == 5


def test_weights_under_timm_s_names_load_but_for_the_head_and_early_norms_are_converted(toy, tmp_path):
    source = ToyNet(1000)
    for module in source.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
    torch.save(source.state_dict(), tmp_path / "toy.pth")
    model = make(norm="asr", weights=tmp_path / "toy.pth")
    assert torch.equal(model.network.conv_stem.weight, source.conv_stem.weight)
    assert model.network.classifier.out_features == 5
    names = [name for name, module in model.named_modules() if isinstance(module, ASRNorm2d)]
    assert names == ["network.bn1", "network.blocks.0.1", "network.blocks.1.1"]
    assert torch.equal(model.network.bn1.gamma_bias, source.bn1.weight)


def test_what_it_cannot_make_is_one_line(toy):
    with pytest.raises(InputError, match=r"'resnet5000'[^\n]*$"):
        asrnorm.create_model("timm", architecture="resnet5000")
    with pytest.raises(InputError):
        asrnorm.create_model("timm", architecture="toy_flat")(torch.rand(1, 3, 8, 8))


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingDependencyError, match=r"needs timm: pip install 'asrnorm\[vision\]'"):
        make()


@pytest.mark.parametrize("name", ["resnet26d", "tf_efficientnet_lite0", "mobilenetv3_small_050", "densenet121"])
def test_networks_of_timm_are_their_three_parts(name):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    model = asrnorm.create_model("timm", architecture=name, num_classes=5).eval()
    other = timm.create_model(name, num_classes=5).eval()
    other.load_state_dict(model.network.state_dict())
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(model(x), other(x))
    assert model.features(x).ndim == 4
    converted = asrnorm.convert(model, "asr", layers="early")
    assert sum(isinstance(module, ASRNorm2d) for module in converted.modules()) > 0
    assert converted(x).shape == (2, 5)
