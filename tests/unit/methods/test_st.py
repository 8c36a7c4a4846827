"""ST against a loop over images and angles."""

import numpy as np
import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from asrnorm.methods.st import turn_all
from helpers.smooth_net import SmoothNet, random_images


def test_the_loss_classifies_upright_images_and_names_the_angle_of_all_four_copies():
    (images, labels), model = random_images(5), SmoothNet()
    method = asrnorm.create_method("st", rotation_weight=0.3)
    method.build(model, images)
    classes = angles = 0.0
    for image, label in zip(images, labels, strict=True):
        classes -= model(image[None])[0].log_softmax(0)[label] / 5
        for angle in range(4):
            turned = torch.from_numpy(np.rot90(image.numpy(), angle, (1, 2)).copy())
            logits = method.trained["angles"](model.embed(turned[None]))[0]
            angles -= logits.log_softmax(0)[angle] / 20
    loss = method.loss(model, Batch(images, labels))
    torch.testing.assert_close(loss, classes + 0.3 * angles, rtol=1e-10, atol=0)


def test_running_statistics_see_the_upright_batch_and_then_the_turned_one():
    model = asrnorm.create_model("wrn_16_4", num_classes=4)
    images, seen = torch.rand(3, 3, 16, 16), []
    method = asrnorm.create_method("st")
    method.build(model, images)
    model.norm.register_forward_hook(lambda layer, inputs, output: seen.append(len(inputs[0])))
    method.loss(model, Batch(images, torch.zeros(3, dtype=torch.long)))
    assert seen == [3, 12]


def test_images_that_are_not_square_and_negative_weights_are_refused():
    with pytest.raises(InputError, match="images must be square to be turned, not 4x6"):
        turn_all(torch.rand(2, 3, 4, 6))
    with pytest.raises(InputError, match="st: rotation_weight must be at least 0, not -1"):
        asrnorm.create_method("st", rotation_weight=-1.0)
