"""What every augmentation promises, alone and in a chain."""

import pytest
import torch

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.augment import AUGMENTATIONS, augment, create_augmentation
from asrnorm.data.augment.named import network_size

STRONG = [
    "cifar",
    {"name": "photometric", "share": 0.6},
    {"name": "edges", "share": 0.25},
    {"name": "randconv", "share": 0.3},
    {"name": "fourier", "share": 0.3},
]


def images(count=7, dtype=torch.float32):
    pixels = torch.randint(0, 256, (count, 3, 16, 20), generator=torch.Generator().manual_seed(0))
    return pixels.to(torch.uint8) if dtype == torch.uint8 else pixels.to(dtype) / 255


@pytest.mark.parametrize("name", AUGMENTATIONS.names())
def test_shape_range_and_dtype_stay_and_the_input_is_not_changed(name):
    for dtype in (torch.uint8, torch.float32, torch.float64):
        before = images(dtype=dtype)
        own = augment(before, name, seed=2)
        assert (own.shape, own.dtype) == (before.shape, dtype)
        assert torch.equal(before, images(dtype=dtype))
        assert own.min() >= 0
        assert own.max() <= (255 if dtype == torch.uint8 else 1)


@pytest.mark.parametrize("name", AUGMENTATIONS.names())
def test_each_process_gets_its_rows_of_the_whole_batch(name):
    augmentation = create_augmentation(name)
    if augmentation.mixes:
        pytest.skip("needs the whole batch; training/batches.py gives it")
    drawn = augmentation.draw(7, (16, 20), torch.Generator().manual_seed(1))
    assert all(len(value) == 7 for value in drawn.values())
    parts = [
        augmentation.apply(images()[rows], {key: value[rows] for key, value in drawn.items()})
        for rows in (slice(0, 4), slice(4, 7))
    ]
    assert torch.allclose(torch.cat(parts), augmentation.apply(images(), drawn), atol=1e-6)


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS.names() if "share" in AUGMENTATIONS.options(name)])
def test_the_share_of_changed_images_is_the_option(name):
    many = images(200)
    options = {"depth": 1} if name == "photometric" else {}
    assert torch.equal(augment(many, [{"name": name, "share": 0.0}]), many)
    own = augment(many, [{"name": name, "share": 0.5, **options}])
    changed = (own - many).abs().amax((1, 2, 3)) > 1e-6
    assert 60 < int(changed.sum()) < 140
    for share in (-0.1, 1.5):
        with pytest.raises(InputError):
            create_augmentation(name, share=share)


def test_draws_depend_on_seed_and_step_alone():
    first = augment(images(), STRONG, seed=1, step=4)
    assert torch.equal(first, augment(images(), STRONG, seed=1, step=4))
    assert not torch.equal(first, augment(images(), STRONG, seed=1, step=5))
    assert not torch.equal(first, augment(images(), STRONG, seed=2, step=4))


def test_a_chain_is_its_parts_one_after_the_other():
    generator = torch.Generator().manual_seed(5)
    chain = create_augmentation(["cifar", "photometric"])
    drawn = chain.draw(7, (16, 20), torch.Generator().manual_seed(5))
    expected = images()
    for name in ("cifar", "photometric"):
        part = create_augmentation(name)
        expected = part.apply(expected, part.draw(7, (16, 20), generator))
    assert torch.equal(chain.apply(images(), drawn), expected)
    assert network_size(["pacs", "edges"], (227, 227)) == (222, 222)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("edgse", UnknownNameError),
        (["edgse"], UnknownNameError),
        ([{"name": "edges", "shares": 1.0}], UnknownNameError),
        ([{"share": 1.0}], InputError),
        ([3], InputError),
        ([{"name": "affine", "scale": [2.0, 1.0]}], InputError),
    ],
)
def test_a_wrong_chain_is_an_error_of_one_line(what, error):
    with pytest.raises(error) as caught:
        create_augmentation(what)
    assert "\n" not in str(caught.value)


def test_images_of_another_shape_are_refused():
    with pytest.raises(InputError):
        augment(torch.rand(3, 16, 16), "edges")
    with pytest.raises(InputError):
        create_augmentation(["edges"], share=1.0)
