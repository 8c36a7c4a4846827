import pickle

import numpy as np
import pytest
import torch

from asrnorm.data.augment import (
    CIFAR_EVAL,
    CIFAR_TRAIN,
    DIGITS_TRAIN,
    PACS_EVAL,
    PACS_TRAIN,
    Compose,
    Resize,
    ToFloat,
    random_crop_flip,
    resize,
    to_float,
)
from helpers.pictures import pictures

PRESETS = {
    "cifar": (CIFAR_TRAIN, (32, 32), (32, 32)),
    "cifar eval": (CIFAR_EVAL, (32, 32), (32, 32)),
    "pacs": (PACS_TRAIN, (227, 227), (222, 222)),
    "pacs eval": (PACS_EVAL, (227, 300), (222, 222)),
    "digits": (DIGITS_TRAIN, (32, 32), (32, 32)),
}


def test_to_float_divides_subtracts_and_divides():
    images = pictures()
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    x = images.permute(0, 2, 3, 1).numpy().astype(np.float32) / np.float32(255)
    assert np.array_equal(to_float(images).permute(0, 2, 3, 1).numpy(), x)
    x = (x - np.float32(mean)) / np.float32(std)
    assert np.array_equal(to_float(images, mean, std).permute(0, 2, 3, 1).numpy(), x)


def test_steps_share_the_generator_in_order():
    images = pictures()
    result = Compose((random_crop_flip, random_crop_flip, Resize((9, 7)), ToFloat()))(
        images, torch.Generator().manual_seed(3)
    )
    generator = torch.Generator().manual_seed(3)
    cropped = random_crop_flip(images, generator)
    assert torch.equal(result, to_float(resize(random_crop_flip(cropped, generator), (9, 7))))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_give_network_input_and_can_be_sent_to_workers(name):
    augment, size, out = PRESETS[name]
    images = pictures(*size)[:3]
    results = [pickle.loads(pickle.dumps(augment))(images, torch.Generator().manual_seed(0)) for _ in range(2)]
    assert results[0].shape == (3, 3, *out)
    assert results[0].dtype == torch.float32
    assert results[0].isfinite().all()
    assert torch.equal(*results)
