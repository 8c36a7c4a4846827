"""Backbones that users register: what they may leave out, and what they are told."""

from functools import partial

import pytest
import torch
from torch import nn

from asrnorm.core.distributed import World
from asrnorm.core.errors import ConversionError, InputError, UnknownNameError
from asrnorm.models import MODELS, Classifier, create_model
from asrnorm.norms import ASRNorm2d, BatchNorm, NoNorm
from asrnorm.training.assembly import synchronize


class OwnNetwork(Classifier):
    def __init__(self, num_classes, norm_layer=nn.BatchNorm2d):
        super().__init__()
        self.num_classes = num_classes
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), norm_layer(8), nn.Linear(8, num_classes)

    def features(self, x):
        return self.norm(self.conv(x)).relu()

    def embed(self, maps):
        return maps.mean((2, 3))

    def classify(self, embedding):
        return self.head(embedding)


@pytest.fixture
def own(monkeypatch):
    def register(factory):
        monkeypatch.setitem(MODELS._entries, "own", factory)

    return register


def plain(*, num_classes=5):
    return OwnNetwork(num_classes)


@pytest.mark.parametrize(("norm", "kind"), [("asr", ASRNorm2d), ("bn", BatchNorm), ("none", NoNorm)])
@pytest.mark.parametrize("before", [nn.BatchNorm2d, BatchNorm, partial(nn.GroupNorm, 2), nn.InstanceNorm2d])
def test_a_network_without_norm_layer_is_converted(own, norm, kind, before):
    own(lambda *, num_classes=5: OwnNetwork(num_classes, before))
    assert type(create_model("own", norm=norm).norm) is kind
    assert type(create_model("own").norm) is type(before(8)), "without a norm it stays as it is"


@pytest.mark.parametrize(("norm", "kind"), [("asr", nn.BatchNorm1d), ("none", NoNorm)])
def test_a_norm_after_a_dense_layer_is_removed_and_else_left_alone(own, norm, kind):
    class Dense(OwnNetwork):
        def __init__(self, num_classes):
            super().__init__(num_classes)
            self.head = nn.Sequential(nn.Linear(8, num_classes), nn.BatchNorm1d(num_classes))

    own(lambda *, num_classes=5: Dense(num_classes))
    model = create_model("own", norm=norm)
    assert type(model.head[1]) is kind
    assert model(torch.rand(4, 3, 8, 8)).shape == (4, 5)


def test_a_network_without_norms_is_one_of_norm_none(own):
    own(lambda *, num_classes=5: OwnNetwork(num_classes, nn.Identity))
    assert type(create_model("own", norm="none").norm) is nn.Identity
    with pytest.raises(ConversionError):
        create_model("own", norm="asr")


def test_statistics_of_a_network_without_norm_layer_are_shared_by_processes(own):
    own(plain)
    assert synchronize(create_model("own", norm="bn"), World(0, 2)) == 1


def test_options_of_bn_reach_a_network_without_norm_layer(own):
    own(plain)
    layer = create_model("own", norm="bn", norm_options={"eps": 0.5}).norm
    assert (type(layer), layer.eps) == (BatchNorm, 0.5)


def test_a_network_that_ignores_its_norm_layer_is_refused(own):
    own(lambda *, num_classes=5, norm_layer=None: OwnNetwork(num_classes))
    with pytest.raises(InputError):
        create_model("own", norm="asr")
    create_model("own", norm="bn")  # which is what it has
    own(lambda *, num_classes=5, norm_layer=None: OwnNetwork(num_classes, norm_layer))
    assert isinstance(create_model("own", norm="asr").norm, ASRNorm2d)


def test_an_option_that_is_not_keyword_only_is_named(own):
    own(lambda num_classes=5: OwnNetwork(num_classes))
    with pytest.raises(UnknownNameError, match="keyword-only"):
        create_model("own", num_classes=2)


def test_a_network_without_parts_or_classes_is_refused(own):
    own(lambda: nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"asrnorm\.models\.Classifier"):
        create_model("own")

    class Forgetful(OwnNetwork):
        def __init__(self):
            super().__init__(2)
            del self.num_classes

    own(Forgetful)
    with pytest.raises(InputError, match=r"set self\.num_classes"):
        create_model("own")


def test_a_classifier_of_another_name_is_asked_for(own, tmp_path):
    own(plain)
    torch.save(OwnNetwork(9).state_dict(), tmp_path / "own.pt")
    with pytest.raises(InputError, match=r"if head is the classifier.*loadable\(\)"):
        create_model("own", weights=tmp_path / "own.pt")

    class Telling(OwnNetwork):
        def loadable(self):
            return self, "head"

    own(lambda *, num_classes=5: Telling(num_classes))
    assert create_model("own", weights=tmp_path / "own.pt").head.out_features == 5


def test_weights_of_a_network_without_norms_are_not_called_bn(tmp_path):
    torch.save(create_model("digits_convnet").state_dict(), tmp_path / "digits.pt")
    assert create_model("digits_convnet", norm="none", weights=tmp_path / "digits.pt").num_classes == 10
    with pytest.raises(ConversionError):
        create_model("digits_convnet", norm="bn", weights=tmp_path / "digits.pt")
