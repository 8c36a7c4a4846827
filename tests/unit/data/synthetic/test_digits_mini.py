import re
import sys

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import MissingDependencyError
from asrnorm.data.synthetic import build_digits_mini, digits_mini
from asrnorm.data.synthetic import sources as font
from asrnorm.data.synthetic.sources import split_digits

SPLITS = {"mnist_train": 4000, "mnist_val": 500, "mnist_test": 500}
TARGETS = {"uci": 1797, "blended": 2000, "rendered": 2000, "inverted": 2000}


@pytest.fixture(scope="module")
def parts():
    return build_digits_mini(seed=0)


def rows(images):
    return [image.tobytes() for image in images]


def test_parts_come_in_order_with_their_sizes_and_types(parts):
    assert {name: len(images) for name, (images, _) in parts.items()} == SPLITS | TARGETS
    assert list(parts) == [*SPLITS, *TARGETS]
    for images, labels in parts.values():
        assert images.shape == (len(labels), 32, 32, 3)
        assert (images.dtype, labels.dtype) == (np.uint8, np.int64)


@pytest.mark.parametrize("name", [*SPLITS, *TARGETS])
def test_classes_are_balanced_and_mixed(parts, name):
    labels = parts[name][1]
    counts = np.bincount(labels, minlength=10)
    assert counts.max() - counts.min() <= (9 if name == "uci" else 0)
    # Sorted by class, a batch of 100 would hold one or two of them, and batch statistics at test would be worthless.
    assert min(len(set(labels[start : start + 100])) for start in range(0, len(labels) - 100, 100)) == 10


def test_the_same_seed_gives_the_same_bytes(parts):
    again = build_digits_mini(seed=0)
    for name, (images, labels) in parts.items():
        np.testing.assert_array_equal(images, again[name][0], strict=True)
        np.testing.assert_array_equal(labels, again[name][1], strict=True)


def test_another_seed_changes_all_but_the_real_domain(parts):
    other = build_digits_mini(seed=1)
    same = {name for name, (images, _) in parts.items() if np.array_equal(images, other[name][0])}
    assert same == {"uci"}


def test_a_change_in_one_domain_leaves_the_others_alone(parts, monkeypatch):
    monkeypatch.setattr(digits_mini, "_RENDERED", 50)
    changed = build_digits_mini(seed=0)
    assert len(changed["rendered"][1]) == 50
    for name in ("mnist_train", "blended", "inverted"):
        np.testing.assert_array_equal(parts[name][0], changed[name][0])


def test_the_splits_share_no_image_and_leave_none_out(parts, subset):
    splits = [set(rows(parts[name][0])) for name in SPLITS]
    assert [len(split) for split in splits] == list(SPLITS.values())
    assert len(set.union(*splits)) == len(subset.labels) == 5000


def test_inverted_digits_are_test_digits_four_times_each(parts):
    images, labels = parts["inverted"]
    ground = images[:, :1, :1].astype(float)
    distance = np.abs(images - ground).sum(3)
    coverage = (distance / distance.max((1, 2), keepdims=True)).reshape(len(images), -1)
    known, answers = zip(*(parts[name] for name in SPLITS), strict=True)
    digits = np.concatenate(known)[..., 0].reshape(5000, -1) / 255
    digits /= digits.max(1, keepdims=True)
    nearest = ((digits**2).sum(1) - 2 * coverage @ digits.T).argmin(1)
    assert np.abs(digits[nearest] - coverage).max() < 0.05
    assert (np.bincount(nearest, minlength=5000) == np.repeat([0, 0, 4], list(SPLITS.values()))).all()
    np.testing.assert_array_equal(np.concatenate(answers)[nearest], labels)


def test_blended_digits_are_test_digits_four_times_each(subset, monkeypatch):
    monkeypatch.setattr(digits_mini, "load_photographs", lambda: [Image.new("RGB", (100, 100))])
    images, labels = build_digits_mini(seed=0)["blended"]
    strokes = rows(images[:, 2:30, 2:30, 0] > 0)  # on black, what is not black is the digit
    digits = split_digits(subset, np.random.default_rng(0).spawn(4)[0])
    splits = {name: rows(part.images_28 > 0) for name, part in digits.items()}
    assert sorted(strokes) == sorted(splits["test"] * 4)
    assert not set(strokes) & set(splits["train"] + splits["val"])
    answers = dict(zip(splits["test"], digits["test"].labels, strict=True))
    assert [answers[stroke] for stroke in strokes] == labels.tolist()


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("mlxtend", "mlxtend"),
        ("sklearn.datasets", "scikit-learn"),
        ("skimage", "scikit-image"),
        ("matplotlib", "matplotlib"),
    ],
)
def test_a_missing_library_is_named_in_one_line(module, distribution, monkeypatch):
    font.font_folder.cache_clear()
    font.load_font.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=re.escape(f"pip install {distribution}")) as caught:
        build_digits_mini()
    assert "\n" not in str(caught.value)
