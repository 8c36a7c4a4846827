import numpy as np
import pytest
import torch

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError
from asrnorm.data import list_suites
from asrnorm.data.augment import RSDA_OPERATIONS, apply_named, create_augmentation
from asrnorm.data.augment.color import shift_hue
from asrnorm.evaluation.shift import (
    _SHIFTS,
    FOLD_SHIFTS,
    SELECTION_SHIFTS,
    _lens,
    apply_shift,
    shift_images,
)

# Transformations that a recipe or method applies to images in training.
TRAINING_TRANSFORMS = frozenset(
    {
        # RDA, RSDA and ESDA, on any suite
        *("autocontrast", "brightness", "color", "contrast", "sharpness", "solarize", "grayscale"),
        *("shift_red", "shift_green", "shift_blue"),
        *("crop", "flip"),  # CIFAR's; RSC's third version flips too
        *("resized_crop", "hue"),  # PACS's, whose others are among RSDA's
    }
)

_DIGIT_TARGETS = frozenset(
    {
        *("photograph_blend", "inversion", "colored_stroke", "colored_ground"),
        *("font", "rotation", "neighboring_digit", "blur", "rescan"),
    }
)

# Differences between each suite's targets and its source.
TARGET_SHIFTS = {
    "digits": _DIGIT_TARGETS,
    "digits_mini": _DIGIT_TARGETS,
    "cifar10c": frozenset(
        {
            *("brightness", "contrast", "saturate", "fog", "frost", "snow", "spatter"),
            *("gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"),
            *("defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
            *("elastic_transform", "jpeg_compression", "pixelate"),
        }
    ),
    "pacs": frozenset({"photograph", "painting", "cartoon", "sketch"}),
    "folder": frozenset(),  # the user's own
}

ALL_SHIFTS = sorted({name for names in SELECTION_SHIFTS.values() for name in names})
GRAY_LEVELS = 3  # a mean difference that the eye sees; two operations that are one in other words stay far below


def smooth_images(count=6, size=32, gray=False):
    """Pictures with edges, slopes and colors: noise would be changed by anything."""
    generator = np.random.default_rng(0)
    row, column = np.mgrid[:size, :size] / size
    images = []
    for _ in range(count):
        slope = generator.uniform(-1, 1, (2, 3))
        picture = 0.5 + (row[..., None] - 0.5) * slope[0] + (column[..., None] - 0.5) * slope[1]
        disc = (row - generator.uniform(0.3, 0.7)) ** 2 + (column - generator.uniform(0.3, 0.7)) ** 2 < 0.05
        picture[disc] = generator.uniform(0, 1, 3)
        images.append(np.repeat(picture.mean(2, keepdims=True), 3, 2) if gray else picture)
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def digit_like(count=6):
    """Light strokes on black, as the source of the digit suites has them."""
    row, column = np.mgrid[:32, :32]
    images = np.zeros((count, 32, 32, 3), np.uint8)
    for index in range(count):
        ring = np.abs(np.hypot(row - 15.5, (column - 15.5) * (1 + index / 4)) - 9)
        images[index] = np.rint(255 * np.clip(2.5 - ring, 0, 1))[..., None]
    return images


def images_of(suite):
    return digit_like() if suite.startswith("digits") else smooth_images()


def as_tensor(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def distance(one, other):
    """Mean absolute difference of each image, in gray levels."""
    return np.abs(one.astype(int) - other.astype(int)).mean((1, 2, 3))


@pytest.mark.parametrize("suite", SELECTION_SHIFTS)
def test_the_three_kinds_of_shift_are_disjoint(suite):
    selection = set(SELECTION_SHIFTS[suite])
    assert len(selection) >= 5
    assert not selection & TRAINING_TRANSFORMS
    assert not selection & TARGET_SHIFTS[suite]
    assert not selection & {"inversion", "photograph_blend"}


def test_the_inventories_are_complete():
    assert set(SELECTION_SHIFTS) == set(TARGET_SHIFTS) == set(list_suites())
    assert {operation.name for operation in RSDA_OPERATIONS} <= TRAINING_TRANSFORMS
    assert TRAINING_TRANSFORMS - {operation.name for operation in RSDA_OPERATIONS} == {
        *("crop", "flip", "resized_crop", "hue")
    }


def test_no_shift_is_a_corruption_of_cifar10c_on_any_suite():
    from asrnorm.data.corruptions import list_corruptions

    assert TARGET_SHIFTS["cifar10c"] == set(list_corruptions())
    assert not set(ALL_SHIFTS) & set(list_corruptions())


@pytest.mark.parametrize("suite", ["digits", "cifar10c"])
def test_every_shift_changes_every_image(suite):
    images = images_of(suite)
    for name, shifted in shift_images(images, suite).items():
        assert shifted.shape == images.shape
        assert shifted.dtype == np.uint8
        assert (distance(shifted, images) > 1).all(), name


@pytest.mark.parametrize("suite", ["digits", "cifar10c"])
def test_no_shift_is_an_operation_of_training_in_other_words(suite):
    images = images_of(suite)
    trained = [
        apply_named(as_tensor(images), [(operation.name, level)]).permute(0, 2, 3, 1).numpy()
        for operation in RSDA_OPERATIONS
        for level in operation.levels
    ]
    trained += [shift_hue(as_tensor(images), step / 51).permute(0, 2, 3, 1).numpy() for step in range(-25, 26)]
    trained += [images[:, :, ::-1]]
    trained += [np.roll(images, (down, right), (1, 2)) for down in range(-4, 5) for right in range(-4, 5)]
    for name, shifted in shift_images(images, suite).items():
        nearest = np.min([distance(shifted, other) for other in trained], axis=0)
        # On a digit a gamma moves the edges of strokes alone, so the mean over the picture is small.
        assert (nearest > (1 if suite == "digits" else GRAY_LEVELS)).all(), (name, nearest)


def test_no_shift_is_the_inverted_digit():
    images = digit_like()
    for shifted in shift_images(images, "digits").values():
        assert (distance(shifted, 255 - images) > 50).all()


@pytest.mark.parametrize("name", ALL_SHIFTS)
def test_a_shift_depends_on_seed_and_place_alone(name):
    images = smooth_images(5)
    whole = apply_shift(images, name, seed=3)
    assert np.array_equal(whole, apply_shift(images, name, seed=3))
    assert np.array_equal(whole[:2], apply_shift(images[:2], name, seed=3))
    others = [apply_shift(images, name, seed) for seed in range(4, 8)]
    assert any(not np.array_equal(whole, other) for other in others)


@pytest.mark.parametrize("name", ALL_SHIFTS)
def test_pieces_of_a_set_join_without_a_seam(name, monkeypatch):
    images = smooth_images(5)
    whole = apply_shift(images, name)
    monkeypatch.setattr("asrnorm.evaluation.shift._CHUNK_VALUES", 3 * 32 * 32 * 2)
    assert np.array_equal(apply_shift(images, name), whole)


@pytest.mark.parametrize("name", ALL_SHIFTS)
@pytest.mark.parametrize("shape", [(0, 8, 8, 3), (1, 1, 1, 3), (2, 5, 9, 3), (1, 224, 160, 3)])
def test_any_size_will_do(name, shape):
    assert apply_shift(np.full(shape, 77, np.uint8), name).shape == shape


def test_the_input_is_left_as_it_is():
    images = smooth_images()
    images.setflags(write=False)  # as a memory map
    before = images.copy()
    shift_images(images, "pacs")
    assert np.array_equal(images, before)


def test_a_few_values_by_hand():
    images = np.full((2, 3, 3, 3), (10, 100, 200), np.uint8)
    swapped = {tuple(pixel) for pixel in apply_shift(images, "channel_swap").reshape(-1, 3).tolist()}
    assert swapped <= {(100, 10, 200), (200, 100, 10), (10, 200, 100)}  # the odd permutations
    cast = apply_shift(np.full((1, 1, 1, 3), 100, np.uint8), "color_cast")
    assert sorted(cast.flatten().tolist()) == [50, 100, 140]
    levels = set(apply_shift(np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3), "posterize").flatten())
    assert levels in ({0, 85, 170, 255}, {0, 64, 128, 191, 255})


def test_refusals_say_what_is_known():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        shift_images(images, "digit")
    with pytest.raises(UnknownNameError, match="did you mean 'gamma'"):
        apply_shift(images, "gama")
    with pytest.raises(InputTypeError):
        apply_shift(images / 255, "gamma")
    with pytest.raises(InputError):
        apply_shift(images.transpose(0, 3, 1, 2), "gamma")


@pytest.mark.parametrize(("drawn", "strength"), [((0.1, 0.0), 0.25), ((0.9, 0.0), -0.3)])
def test_a_lens_leaves_the_middles_of_the_sides_where_they_are(drawn, strength):
    ramp = torch.linspace(-1 + 1 / 33, 1 - 1 / 33, 33)
    column = ramp.expand(1, 1, 33, 33)
    found = _lens(column, torch.tensor([drawn]))[0, 0, 16]  # the row in the middle
    inside = ramp.abs() < 0.8
    torch.testing.assert_close(found[inside], (ramp * (1 + strength * ramp**2) / (1 + strength))[inside])
    assert abs(found[-1] - ramp[-1]) < 0.05


FOLDS = ("values", "structure")
# What an augmentation does, where its own name does not say it, in the words of `TARGET_SHIFTS`.
RESEMBLES = {
    "edges": {"sketch"},
    "invert": {"inversion"},
    "solarize": {"inversion"},
    "noise": {"gaussian_noise", "impulse_noise", "speckle_noise"},
    "blur": {"gaussian_blur", "defocus_blur", "blur"},
    "affine": {"rotation"},
}


def test_every_suite_with_selection_shifts_has_two_halves():
    assert set(FOLD_SHIFTS) == set(SELECTION_SHIFTS)


@pytest.mark.parametrize("suite", FOLD_SHIFTS)
def test_a_fold_is_measured_on_what_training_with_it_leaves_out(suite):
    for fold in FOLDS:
        for shift in FOLD_SHIFTS[suite][fold]:
            part = {"name": shift} if isinstance(shift, str) else shift
            if part["name"] in _SHIFTS:
                continue  # none of these is an augmentation
            whole = create_augmentation([part])
            held = [whole.in_fold(other).parts[0] for other in FOLDS]
            assert held[FOLDS.index(fold)].__dict__ == whole.parts[0].__dict__
            assert type(held[1 - FOLDS.index(fold)]).__name__ == "NoAugmentation"


@pytest.mark.parametrize("suite", FOLD_SHIFTS)
def test_no_fold_is_measured_on_what_the_targets_show(suite):
    parts = [shift for shifts in FOLD_SHIFTS[suite].values() for shift in shifts]
    names = {name for part in parts for name in ([part] if isinstance(part, str) else part["operations"])}
    shown = set().union(*(RESEMBLES.get(name, {name}) for name in names))
    assert not shown & TARGET_SHIFTS[suite]


def test_shifts_of_a_fold_are_those_of_the_other_half():
    images = smooth_images(5)
    for fold, other in (FOLDS, FOLDS[::-1]):
        shifted = shift_images(images, "pacs", 1, fold=fold)
        names = [shift if isinstance(shift, str) else shift["name"] for shift in FOLD_SHIFTS["pacs"][other]]
        assert list(shifted) == names
        for name, changed in shifted.items():
            assert changed.shape == images.shape
            assert not np.array_equal(changed, images), name
        again = shift_images(images, "pacs", 1, fold=fold)
        assert all(np.array_equal(again[name], changed) for name, changed in shifted.items())
