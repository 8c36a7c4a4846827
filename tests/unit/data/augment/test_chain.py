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
        ([{"name": "pro_randconv", "repeats": 10**6}], InputError),
        ([{"name": "photometric", "depth": 10**6}], InputError),
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


@pytest.mark.parametrize("name", AUGMENTATIONS.names())
def test_images_may_be_views_of_channels_last_memory(name):
    before = images(dtype=torch.uint8)
    assert torch.equal(augment(before.to(memory_format=torch.channels_last), name), augment(before, name))


BANK = [name for name in AUGMENTATIONS.names() if name not in ("none", "cifar", "cifar_zero", "pacs", "pacs_color")]


@pytest.mark.parametrize("name", BANK)
def test_the_two_halves_of_the_bank_share_no_augmentation(name):
    whole = create_augmentation(name)
    parts = [whole.in_fold(fold) for fold in ("values", "structure")]
    if hasattr(whole, "operations"):
        own = [{part.names[k] for k in getattr(part, "operations", ())} - {"identity"} for part in parts]
        assert own[0].isdisjoint(own[1])
        assert set(own[0] | own[1]) == set(whole.names) - {"identity"}
    else:
        assert [type(part) for part in parts].count(type(create_augmentation("none"))) == 1
    assert whole.in_fold("none").__dict__ == whole.__dict__


def test_a_fold_leaves_the_rest_of_a_chain():
    chain = create_augmentation(["cifar", {"name": "photometric", "share": 1.0}, {"name": "edges", "share": 1.0}])
    for fold, rest in (("values", "photometric"), ("structure", "edges")):
        drawn = chain.in_fold(fold).draw(5, (16, 20), torch.Generator().manual_seed(0))
        assert {"chosen"} <= {key.partition(".")[2] for key in drawn}
        assert {"0.top", "1.op" if rest == "photometric" else "2.blurred"} <= set(drawn)
        assert not {"2.blurred" if rest == "photometric" else "1.depth"} & set(drawn)


@pytest.mark.parametrize("name", ["photometric", "rsda"])
def test_operations_are_drawn_from_those_named(name):
    chosen = {"photometric": "invert", "rsda": "shift_red"}[name]
    augmentation = create_augmentation(name, operations=[chosen], share=1.0)
    drawn = augmentation.draw(50, (16, 20), torch.Generator().manual_seed(0))
    found = drawn["ops" if name == "rsda" else "op"]
    assert set(found.unique().tolist()) == {augmentation.names.index(chosen)}
    for wrong, kind in (([], InputError), ("invert", (InputError, UnknownNameError)), (["inverted"], UnknownNameError)):
        with pytest.raises(kind):
            create_augmentation(name, operations=wrong)


def test_rsda_augments_each_image_by_a_tuple_of_its_own():
    from asrnorm.data.augment import apply_tuple

    augmentation, pixels = create_augmentation("rsda"), images(20, torch.uint8)
    drawn = augmentation.draw(20, (16, 20), torch.Generator().manual_seed(3))
    assert drawn["ops"].shape == (20, 3)
    assert torch.equal(augmentation.apply(pixels, drawn), apply_tuple(pixels, drawn["ops"], drawn["levels"]))
