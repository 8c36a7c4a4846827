import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.augment import AUGMENTATIONS, create_augmentation, to_float
from asrnorm.data.augment.named import CropFlip, network_size


def generator():
    return torch.Generator().manual_seed(3)


def pictures(count=6, size=16):
    return torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def augment(kind, images):
    return create_augmentation(kind)(images, generator())


@pytest.mark.parametrize("name", AUGMENTATIONS.names())
def test_autocast_changes_no_image(name):
    images = to_float(pictures())
    expected = augment(name, images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(augment(name, images), expected)


def test_none_returns_the_images():
    images = to_float(pictures())
    assert augment("none", images) is images


def test_cifar_moves_pixels_as_the_byte_version_does():
    expected = to_float(augment("cifar", pictures()))
    assert torch.equal(augment("cifar", to_float(pictures())), expected)


def test_cifar_leaves_generated_images_beyond_the_range():
    images = torch.linspace(-1, 2, 6 * 3 * 256).view(6, 3, 16, 16)
    moved = augment("cifar", images)
    assert set(moved.flatten().tolist()) <= set(images.flatten().tolist())
    assert float(moved.min()) < 0
    assert float(moved.max()) > 1


@pytest.mark.parametrize("kind", ["cifar", "pacs"])
def test_each_process_gets_its_rows_of_the_whole_batch(kind):
    images = to_float(pictures(7))
    augmentation = create_augmentation(kind)
    drawn = augmentation.draw(7, (16, 16), generator())
    parts = [
        augmentation.apply(images[rows], {name: value[rows] for name, value in drawn.items()})
        for rows in (slice(0, 4), slice(4, 7))
    ]
    assert torch.equal(torch.cat(parts), augment(kind, images))


def test_pacs_crops_its_published_size_and_keeps_others():
    assert augment("pacs", torch.rand(1, 3, 227, 227)).shape == (1, 3, 222, 222)
    changed = augment("pacs", to_float(pictures(40)))
    assert changed.shape == (40, 3, 16, 16)
    assert (float(changed.min()), float(changed.max())) >= (0.0, 0.0)
    assert torch.equal((changed * 255).round() / 255, changed)
    gray = (changed[:, 0] == changed[:, 1]).all((1, 2)) & (changed[:, 1] == changed[:, 2]).all((1, 2))
    assert 1 <= int(gray.sum()) <= 12


def test_pacs_rounds_generated_images_to_bytes():
    images = torch.full((2, 3, 8, 8), 1.7)
    assert float(augment("pacs", images).max()) <= 1.0


def test_samples_are_shifted_independently_and_uniformly():
    # Each pixel says where it came from, so the offsets and flips can be read off the result.
    position = torch.arange(32, dtype=torch.uint8)
    images = torch.stack(torch.broadcast_tensors(position[:, None], position[None], position.new_zeros(1, 1)))
    result = CropFlip()(images.expand(20_000, 3, 32, 32), torch.Generator().manual_seed(0)).int()
    rows = result[:, 0, 16, 16]
    flipped = result[:, 1, 16, 15] > result[:, 1, 16, 16]
    assert 0.48 < flipped.float().mean() < 0.52
    counts = torch.bincount(rows)[12:21]
    assert len(counts) == 9
    assert counts.sum() == 20_000
    assert counts.min() > 0.9 * 20_000 / 9
    assert abs(float(torch.corrcoef(torch.stack((rows, result[:, 1, 16, 16] * (1 - 2 * flipped.int()))))[0, 1])) < 0.05


def test_the_same_seed_gives_the_same_batch():
    first, second, third = (CropFlip()(pictures(), torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_no_padding_and_no_flip_change_nothing():
    images = pictures()
    assert torch.equal(CropFlip(padding=0, flip=0.0)(images, torch.Generator()), images)


def test_a_padding_that_cannot_be_mirrored_is_refused():
    with pytest.raises(InputError):
        CropFlip()(torch.zeros(1, 3, 4, 9), torch.Generator())


def test_a_generator_on_another_device_is_refused():
    class Elsewhere:
        device = torch.device("cuda")

    with pytest.raises(InputError, match=r"torch.Generator\('cpu"):
        create_augmentation("cifar")(pictures(), Elsewhere())


def test_wrong_names_and_options_are_refused():
    assert {"cifar", "cifar_zero", "none", "pacs", "pacs_color"} < set(AUGMENTATIONS.names())
    with pytest.raises(UnknownNameError):
        create_augmentation("cifra")
    with pytest.raises(UnknownNameError):
        create_augmentation("cifar", pading=3)


def test_black_borders_are_those_of_a_padded_image():
    images = torch.rand(50, 3, 8, 10)
    drawn = CropFlip().draw(50, (8, 10), torch.Generator().manual_seed(0))
    moved = create_augmentation("cifar_zero").apply(images, drawn)
    padded = F.pad(images, (4, 4, 4, 4))
    for row in range(50):
        top, left = drawn["top"][row], drawn["left"][row]
        window = padded[row, :, top : top + 8, left : left + 10]
        assert torch.equal(moved[row], window.flip(2) if drawn["flip"][row] else window)


def test_pacs_color_is_pacs_without_gray_images():
    plain, color = (create_augmentation(name).draw(200, (227, 227), generator()) for name in ("pacs", "pacs_color"))
    assert plain.pop("gray").any()
    assert not color.pop("gray").any()
    assert all(torch.equal(plain[name], color[name]) for name in plain)
    assert network_size("pacs_color", (227, 227)) == (222, 222)
