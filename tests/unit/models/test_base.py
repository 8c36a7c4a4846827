import pytest
from torch import nn

from asrnorm.models import MODELS, create_model
from asrnorm.models.base import NormalizedInput, classifier_head


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
