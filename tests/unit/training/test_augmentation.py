import pytest
import torch

from asrnorm.data.augment import random_crop_flip
from asrnorm.training.batches import augment_images, draw_augmentation


def generator():
    return torch.Generator().manual_seed(3)


def pictures(count=6, size=16):
    return torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def augment(kind, images):
    return augment_images(kind, images, draw_augmentation(kind, len(images), images.shape[2:], generator()))


def test_none_returns_the_images():
    images = pictures().float() / 255
    assert augment("none", images) is images


def test_cifar_moves_pixels_as_the_byte_version_does():
    expected = random_crop_flip(pictures(), generator()).float() / 255
    assert torch.equal(augment("cifar", pictures().float() / 255), expected)


def test_cifar_leaves_grown_images_beyond_the_range():
    images = torch.linspace(-1, 2, 6 * 3 * 256).view(6, 3, 16, 16)
    moved = augment("cifar", images)
    assert set(moved.flatten().tolist()) <= set(images.flatten().tolist())
    assert float(moved.min()) < 0
    assert float(moved.max()) > 1


@pytest.mark.parametrize("kind", ["cifar", "pacs"])
def test_each_process_gets_its_rows_of_the_whole_batch(kind):
    images = pictures(7).float() / 255
    drawn = draw_augmentation(kind, 7, (16, 16), generator())
    parts = [
        augment_images(kind, images[rows], {name: value[rows] for name, value in drawn.items()})
        for rows in (slice(0, 4), slice(4, 7))
    ]
    assert torch.equal(torch.cat(parts), augment(kind, images))


def test_pacs_crops_its_published_size_and_keeps_others():
    assert augment("pacs", torch.rand(1, 3, 227, 227)).shape == (1, 3, 222, 222)
    changed = augment("pacs", pictures(40).float() / 255)
    assert changed.shape == (40, 3, 16, 16)
    assert (float(changed.min()), float(changed.max())) >= (0.0, 0.0)
    assert torch.equal((changed * 255).round() / 255, changed)
    gray = (changed[:, 0] == changed[:, 1]).all((1, 2)) & (changed[:, 1] == changed[:, 2]).all((1, 2))
    assert 1 <= int(gray.sum()) <= 12


def test_pacs_rounds_grown_images_to_bytes():
    images = torch.full((2, 3, 8, 8), 1.7)
    assert float(augment("pacs", images).max()) <= 1.0
