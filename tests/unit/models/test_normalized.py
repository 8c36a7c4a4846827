import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputTypeError
from asrnorm.models import Normalize
from asrnorm.models.base import NormalizedInput


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
    with pytest.raises(
        InputTypeError, match=r"Sequential has no features, embed, classify; put asrnorm\.models\.Norma"
    ):
        NormalizedInput(network, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
    x = torch.rand(2, 3, 4, 4)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(1, 3, 1, 1)
    normalized = nn.Sequential(Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), network)
    torch.testing.assert_close(normalized(x), network((x - mean) / std))
