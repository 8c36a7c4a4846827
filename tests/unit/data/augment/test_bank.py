"""Operations of the augmentations against Pillow, NumPy and SciPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage

from asrnorm.core.errors import InputError
from asrnorm.core.randomness import normal_rows
from asrnorm.data.augment import create_augmentation
from asrnorm.data.augment.augmix import SKIP, apply_operation, operation_values
from asrnorm.data.augment.color import equalize, invert, posterize
from asrnorm.data.augment.fourier import mix_amplitudes
from asrnorm.data.augment.geometry import affine
from asrnorm.data.augment.photometric import BANK, apply_bank


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def images():
    """Noise, few tones, one tone, dark, and smooth."""
    pixels = torch.randint(0, 256, (5, 3, 21, 30), generator=generator()).to(torch.uint8)
    pixels[1] = pixels[1] // 60 * 60
    pixels[2] = 7
    pixels[3] = pixels[3] // 9
    pixels[4] = torch.arange(30).mul(8).to(torch.uint8)
    return pixels


def to_pillow(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def assert_equals_pillow(result, images, operation):
    for own, image in zip(result, images, strict=True):
        assert np.array_equal(own.permute(1, 2, 0).numpy(), np.asarray(operation(to_pillow(image))))


def test_operations_of_image_ops_equal_pillow(images):
    assert_equals_pillow(invert(images), images, ImageOps.invert)
    assert_equals_pillow(equalize(images), images, ImageOps.equalize)
    for bits in range(1, 9):
        assert_equals_pillow(posterize(images, bits), images, lambda image, bits=bits: ImageOps.posterize(image, bits))


def test_affine_equals_pillow_for_any_matrix(images):
    spread = torch.tensor([0.5, 0.5, 6, 0.5, 0.5, 6], dtype=torch.float64)
    identity = torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float64)
    for seed in range(8):
        matrix = identity + spread * torch.randn(6, generator=generator(seed), dtype=torch.float64)
        data = tuple(matrix.tolist())
        assert_equals_pillow(
            affine(images, matrix.expand(5, 6)),
            images,
            lambda image, data=data: image.transform(
                image.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR
            ),
        )
    assert torch.equal(affine(images, identity.expand(5, 6)), images)
    with pytest.raises(InputError):
        affine(images, identity.expand(5, 6).float())


PILLOW_BANK = {
    "identity": lambda image, _: image,
    "invert": lambda image, _: ImageOps.invert(image),
    "solarize": lambda image, level: ImageOps.solarize(image, int(level)),
    "contrast": lambda image, level: ImageEnhance.Contrast(image).enhance(level),
    "brightness": lambda image, level: ImageEnhance.Brightness(image).enhance(level),
    "sharpness": lambda image, level: ImageEnhance.Sharpness(image).enhance(level),
    "gray": lambda image, _: ImageOps.grayscale(image).convert("RGB"),
    # Pillow has none of these two: a table of the formula.
    "posterize": lambda image, level: image.point(
        [int(i * int(level) // 256 * 255 / (int(level) - 1) + 0.5) for i in range(256)] * 3
    ),
    "gamma": lambda image, level: image.point([int(255 * (i / 255) ** level + 0.5) for i in range(256)] * 3),
}


@pytest.mark.parametrize("index", range(len(BANK)), ids=[entry[0] for entry in BANK])
def test_the_bank_equals_pillow(index, images):
    name, low, high = BANK[index]
    for part in (0.0, 0.37, 0.74):
        level = low + part * (high - low)
        own = apply_bank(images, torch.full((5,), index), torch.full((5,), level, dtype=torch.float64))
        assert_equals_pillow(own, images, lambda image, level=level: PILLOW_BANK[name](image, level))


def test_each_image_of_a_batch_has_its_own_operation(images):
    op, level = torch.tensor([1, 4, 6, 7, 8]), torch.tensor([0, 2.5, 3, 0.5, 0], dtype=torch.float64)
    whole = apply_bank(images, op, level)
    single = [apply_bank(images[i : i + 1], op[i : i + 1], level[i : i + 1]) for i in range(5)]
    assert torch.equal(whole, torch.cat(single))


def shifted(matrix):
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_operations_of_augmix_equal_pillow(images, sign):
    level = 2.9  # of 10; images are 21 x 30
    operations = [
        ImageOps.autocontrast,
        ImageOps.equalize,
        lambda image: ImageOps.posterize(image, 4 - 1),
        lambda image: ImageOps.solarize(image, 256 - 74),
        lambda image: image.rotate(sign * 8, resample=Image.Resampling.BILINEAR),
        shifted((1, sign * 0.29 * 0.3, 0, 0, 1, 0)),
        shifted((1, 0, 0, sign * 0.29 * 0.3, 1, 0)),
        shifted((1, 0, sign * 2, 0, 1, 0)),
        shifted((1, 0, 0, 0, 1, sign * 2)),
    ]
    for index, operation in enumerate(operations):
        op = torch.full((5,), index)
        levels = torch.full((5,), level, dtype=torch.float64)
        own = apply_operation(images, op, *operation_values(op, levels, torch.full((5,), float(sign)), (21, 30)))
        difference = 1 if index == 4 else 0  # Image.rotate rounds sine and cosine to 15 digits
        for one, image in zip(own, images, strict=True):
            pillow = np.asarray(operation(to_pillow(image))).astype(int)
            assert np.abs(one.permute(1, 2, 0).numpy().astype(int) - pillow).max() <= difference
    skipped = torch.full((5,), SKIP)
    values = operation_values(skipped, levels, torch.ones(5), (21, 30))
    assert torch.equal(apply_operation(images, skipped, *values), images)


def test_augmix_mixes_its_chains_by_their_weights(images):
    augmix = create_augmentation("augmix", width=2, depth=2)
    drawn = augmix.draw(5, (21, 30), generator(4))
    chains = []
    for i in range(2):
        pixels = images
        for j in range(2):
            pixels = apply_operation(pixels, *(drawn[name][:, i, j] for name in ("op", "value", "matrix")))
        chains.append(pixels.double() / 255)
    weight, mix = drawn["weight"].double(), drawn["mix"].double().view(5, 1, 1, 1)
    mean = sum(weight[:, i].view(5, 1, 1, 1) * chains[i] for i in range(2))
    expected = (1 - mix) * images.double() / 255 + mix * mean
    assert torch.allclose(augmix.apply(images.double() / 255, drawn), expected, atol=1e-6)
    assert torch.allclose(weight.sum(1), torch.ones(5).double())
    with pytest.raises(InputError):  # it would draw for hours
        create_augmentation("augmix", depth=2**31)


def test_edge_maps_are_sobel_magnitudes(images):
    edges = create_augmentation("edges", share=1.0, blurred=0.0, inverted=1.0, gain=2.0)
    own = edges(images.float() / 255, generator())
    for one, image in zip(own, images, strict=True):
        gray = np.asarray(ImageOps.grayscale(to_pillow(image))) / 255
        slopes = [ndimage.sobel(gray, axis=axis, mode="nearest") for axis in (0, 1)]
        assert np.allclose(one.numpy(), np.minimum(1, np.hypot(*slopes) / 2)[None], atol=1e-5)
    dark = create_augmentation("edges", share=1.0, blurred=0.0, inverted=0.0, gain=2.0)(
        images.float() / 255, generator()
    )
    assert torch.allclose(own + dark, torch.ones(()))


def test_blur_is_gaussian(images):
    blur = create_augmentation("blur", share=1.0)
    drawn = blur.draw(5, (21, 30), generator())
    own = blur.apply(images.double() / 255, drawn)
    for one, image, sigma in zip(own, images, drawn["sigma"].tolist(), strict=True):
        expected = ndimage.gaussian_filter(
            image.double().numpy() / 255, (0, sigma, sigma), mode="nearest", radius=(0, 6, 6)
        )
        assert np.allclose(one.numpy(), expected, atol=1e-5)


def test_pixelated_squares_have_one_value(images):
    own = create_augmentation("pixelate", share=1.0, size=2)(images, generator())
    assert torch.equal(own[:, :, 0:20:2, 0:30:2], own[:, :, 1:20:2, 1:30:2])
    assert torch.equal(own[:, :, 0:20:2, 0:30:2], images[:, :, 1:20:2, 1:30:2])


def test_noise_has_its_kind_and_strength():
    gray = torch.full((600, 3, 12, 12), 0.5)
    additive = create_augmentation("noise", share=1.0, additive=0.1, multiplicative=0.0, sparse=0.0)
    drawn = additive.draw(600, (12, 12), generator())
    deviation = additive.apply(gray, drawn).std((1, 2, 3))
    assert torch.allclose(deviation, drawn["additive"], atol=0.02)
    sparse = create_augmentation("noise", share=1.0, additive=0.0, multiplicative=0.0, sparse=0.2)
    drawn = sparse.draw(600, (12, 12), generator())
    own = sparse.apply(gray, drawn)
    assert set(own.unique().tolist()) == {0.0, 0.5, 1.0}
    assert torch.allclose((own != 0.5).float().mean((1, 2, 3)), drawn["sparse"], atol=0.08)
    multiplied = create_augmentation("noise", share=1.0, additive=0.0, multiplicative=0.5, sparse=0.0)(
        gray, generator()
    )
    assert float((multiplied - 0.5).abs().max()) <= 0.25
    with pytest.raises(InputError):
        create_augmentation("noise", additive=0.0, multiplicative=0.0, sparse=0.0)


def test_amplitudes_mix_and_phases_stay():
    x, other = torch.rand((2, 4, 3, 12, 9), generator=generator(), dtype=torch.float64)
    move = torch.tensor([0.0, 0.3, 0.7, 1.0], dtype=torch.float64)
    own = np.fft.fft2(mix_amplitudes(x, other, move).numpy())
    one, two = np.fft.fft2(x.numpy()), np.fft.fft2(other.numpy())
    part = move.view(4, 1, 1, 1).numpy()
    expected = (1 - part) * np.abs(one) + part * np.abs(two)
    assert np.allclose(np.abs(own), expected)
    assert np.allclose(own * np.abs(one), one * expected)  # the same phase


def test_randconv_is_a_convolution_mixed_with_the_image():
    images = torch.rand((6, 3, 11, 13), generator=generator())
    randconv = create_augmentation("randconv", share=1.0)
    drawn = randconv.draw(6, (11, 13), generator(3))
    own = randconv.apply(images, drawn)
    weights = normal_rows(drawn["key"], (3, 3, 7, 7))
    for i, radius in enumerate(drawn["radius"].tolist()):
        size = 2 * radius + 1
        kernel = weights[i, :, :, 3 - radius : 4 + radius, 3 - radius : 4 + radius] / (3 * size**2) ** 0.5
        out = F.conv2d(images[i : i + 1] - 0.5, kernel, padding=radius) + 0.5
        alpha = float(drawn["alpha"][i])
        assert torch.allclose(own[i : i + 1], (alpha * images[i : i + 1] + (1 - alpha) * out).clamp(0, 1), atol=1e-5)
    assert len(set(drawn["radius"].tolist())) > 1


def test_pro_randconv_without_deformation_is_a_repeated_convolution():
    images = torch.rand((4, 3, 9, 10), generator=generator())
    augmentation = create_augmentation("pro_randconv", share=1.0, repeats=3, deformation=0.0)
    drawn = augmentation.draw(4, (9, 10), generator(1))
    own = augmentation.apply(images, drawn)
    numbers = normal_rows(drawn["key"], (87,))
    for i in range(4):
        distance = torch.tensor([2.0, 1, 2, 1, 0, 1, 2, 1, 2]).view(3, 3)
        window = torch.exp(-distance / (2 * drawn["window"][i] ** 2))
        kernel = numbers[i, :81].view(3, 3, 3, 3) * window / 27**0.5
        gamma, beta = (0.5 * numbers[i, 81:]).view(2, 1, 3, 1, 1)
        x = 2 * images[i : i + 1] - 1
        for _ in range(int(drawn["repeats"][i])):
            y = F.instance_norm(F.conv2d(x, kernel, padding=1), eps=1e-12)
            x = torch.tanh(gamma * y + beta)
        assert torch.allclose(own[i : i + 1], (x + 1) / 2, atol=2e-3)


@pytest.mark.parametrize("operations", [5, 0, True, "contrast", [], {"contrast": 1}])
def test_operations_are_a_list_of_names(operations):
    with pytest.raises(InputError, match="must be a list of names"):
        create_augmentation("photometric", operations=operations)
