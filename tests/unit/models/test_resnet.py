"""ResNets."""

import torch
import torch.nn.functional as F

from asrnorm.models import create_model


def test_the_stem_of_a_resnet_pools_by_overlapping_squares_as_that_of_torchvision():
    model = create_model("resnet18", num_classes=7).eval()
    images = torch.rand(1, 3, 66, 66)
    seen = []
    model.layer1.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.features(images)
        stem = F.relu(model.bn1(F.conv2d(images, model.conv1.weight, stride=2, padding=3)))
        torch.testing.assert_close(seen[0], F.max_pool2d(stem, 3, 2, padding=1))
