import numpy as np
import pytest
import torch
from PIL import Image

from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet
from asrnorm.evaluation.shift import shift_images
from asrnorm.training.selection import Selector, create_measure, hold_out, needs_hold_out, validate
from helpers.tiny_run import Choice, ToyNet, ToySuite, tiny_config

CPU = torch.device("cpu")


def test_the_best_weights_are_kept_although_training_goes_on():
    model, scores = torch.nn.Linear(1, 1), iter([0.2, 0.7, 0.7])
    selector = Selector(lambda model: next(scores))
    for step in (1, 2, 3):
        torch.nn.init.constant_(model.weight, float(step))
        selector.consider(model, step)
    assert (selector.step, selector.score, float(selector.weights["weight"])) == (2, 0.7, 2.0)


def test_ties_may_go_to_the_last_of_the_best():
    model, scores = torch.nn.Linear(1, 1), iter([0.2, 0.7, 0.7, 0.6])
    selector = Selector(lambda model: next(scores), "last")
    for step in (1, 2, 3, 4):
        torch.nn.init.constant_(model.weight, float(step))
        selector.consider(model, step)
    assert (selector.step, selector.score, float(selector.weights["weight"])) == (3, 0.7, 3.0)


def test_a_first_score_of_zero_is_kept():
    selector = Selector(lambda model: 0.0)
    selector.consider(torch.nn.Linear(1, 1), 5)
    assert selector.step == 5


def test_state_comes_back():
    selector, other = Selector(lambda model: 0.5), Selector(lambda model: 0.4)
    model = torch.nn.Linear(2, 2)
    selector.consider(model, 3)
    other.load_state_dict(selector.state_dict())
    other.consider(torch.nn.Linear(2, 2), 4)
    assert other.step == 3
    assert torch.equal(other.weights["weight"], model.weight)


@pytest.mark.parametrize(("count", "held"), [(40, 4), (100_000, 5_000)])
def test_the_hold_out_is_a_tenth_or_5000_and_the_rest_is_the_rest(count, held):
    images = np.broadcast_to(np.zeros((1, 1, 1, 3), np.uint8), (count, 1, 1, 3))
    data = ImageSet(images, np.arange(count) % 4)
    kept, chosen = hold_out(data)
    assert (len(kept), len(chosen)) == (count - held, held)
    assert len(set(chosen.class_counts(4).tolist())) == 1


def test_the_hold_out_of_files_is_the_same_rows(tmp_path):
    labels = np.arange(40) % 2
    files = FileSet(tuple(tmp_path / f"{row}.png" for row in range(40)), labels, (2, 2))
    images = ImageSet(np.arange(40, dtype=np.uint8)[:, None, None, None].repeat(3, 3), labels)
    kept, held = hold_out(files)
    assert [int(path.stem) for path in held.paths] == hold_out(images)[1].images[:, 0, 0, 0].tolist()
    assert not set(kept.paths) & set(held.paths)


def test_classes_of_one_image_leave_none_to_choose_by():
    data = ImageSet(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4))
    with pytest.raises(InputError, match="too few training images to hold one out"):
        hold_out(data)


def test_only_rules_that_look_at_the_source_need_one_and_only_without_a_validation_split():
    without, having = ToySuite(validation=False), ToySuite()
    assert needs_hold_out(tiny_config(selection="source-val", evaluate_every=5), without)
    assert needs_hold_out(tiny_config(selection="shifted-val", evaluate_every=5), without)
    assert not needs_hold_out(tiny_config(selection="source-val", evaluate_every=0), without)
    assert not needs_hold_out(tiny_config(selection="source-val", evaluate_every=5), having)
    assert not needs_hold_out(tiny_config(selection="oracle", evaluate_every=5), without)
    assert not needs_hold_out(tiny_config(selection="last", evaluate_every=5), without)


def test_each_rule_measures_what_it_says():
    suite, model = ToySuite(), ToyNet()

    def measure(rule):
        config = tiny_config(suite=Choice(name="toy"))
        return create_measure(rule, suite, suite.validation, config, CPU, ALONE)(model)

    def accuracy(data):
        with torch.no_grad():
            guess = model(torch.from_numpy(data.images).permute(0, 3, 1, 2).float() / 255).argmax(1)
        return float((guess.numpy() == data.labels).mean())

    assert measure("source-val") == pytest.approx(accuracy(suite.validation))
    assert measure("oracle") == pytest.approx(np.mean([accuracy(suite.targets[name]) for name in suite.targets]))
    assert 0 <= measure("shifted-val") <= 1


def test_files_sorted_by_class_are_shifted_in_all_classes_and_keep_their_labels(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.training.selection._SHIFTED_IMAGES", 6)
    labels = np.arange(12) // 4
    for row, label in enumerate(labels):
        Image.new("RGB", (8, 8), tuple(200 * np.eye(3, dtype=int)[label])).save(tmp_path / f"{row}.png")
    files = FileSet(tuple(tmp_path / f"{row}.png" for row in range(12)), labels, (8, 8))
    seen = set()

    class Brightest(torch.nn.Module):
        def forward(self, images):
            logits = images.mean((2, 3))
            seen.update(logits.argmax(1).tolist())
            return logits

    measure = create_measure("shifted-val", ToySuite(), files, tiny_config(), CPU, ALONE)
    assert measure(Brightest()) == 1  # no shift of the digits changes which channel is the brightest
    assert seen == {0, 1, 2}


def test_images_in_memory_are_shifted_as_those_in_files_are(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.training.selection._SHIFTED_IMAGES", 6)
    pixels, labels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8), np.arange(12) % 3
    for row, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    files = FileSet(tuple(tmp_path / f"{row}.png" for row in range(12)), labels, (8, 8))
    seen = []

    class Counting(torch.nn.Module):
        def forward(self, images):
            seen.append(images.clone())
            return images.mean((2, 3))

    scores = [
        create_measure("shifted-val", ToySuite(), data, tiny_config(), CPU, ALONE)(Counting())
        for data in (files, ImageSet(pixels, labels))
    ]
    assert scores[0] == scores[1], "whether they fit into memory must not choose"
    whole = torch.cat(seen)
    assert torch.equal(*whole.chunk(2))


def test_a_rule_without_images_is_refused():
    with pytest.raises(InputError, match="no validation images"):
        create_measure("source-val", ToySuite(), None, tiny_config(), CPU, ALONE)


def test_shifted_val_is_the_mean_over_the_shifts_of_the_suite_and_no_others():
    data, seen = ToySuite().validation, []

    class RightOnce(torch.nn.Module):
        def forward(self, images):
            seen.append((images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
            return torch.nn.functional.one_hot(torch.from_numpy(data.labels + (len(seen) > 1)) % 3, 3).float()

    measure = create_measure("shifted-val", ToySuite(), data, tiny_config(evaluate_batch=30), CPU, ALONE)
    assert measure(RightOnce()) == 1 / 5
    expected = shift_images(data.images, "digits", 0).values()
    assert all(np.array_equal(one, other) for one, other in zip(seen, expected, strict=True))


@pytest.mark.parametrize("fold", ["values", "structure"])
def test_with_a_fold_shifted_val_is_the_mean_over_the_other_half(fold):
    data, seen = ToySuite().validation, []

    class RightOnce(torch.nn.Module):
        def forward(self, images):
            seen.append((images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
            return torch.nn.functional.one_hot(torch.from_numpy(data.labels + (len(seen) > 1)) % 3, 3).float()

    config = tiny_config(evaluate_batch=30, fold=fold)
    expected = shift_images(data.images, "digits", fold=fold).values()
    assert create_measure("shifted-val", ToySuite(), data, config, CPU, ALONE)(RightOnce()) == 1 / len(expected)
    assert all(np.array_equal(one, other) for one, other in zip(seen, expected, strict=True))


@pytest.mark.parametrize(("rule", "domains"), [("source-val", 1), ("shifted-val", 5), ("oracle", 3)])
def test_no_more_images_of_a_domain_are_scored_than_the_limit(rule, domains):
    class Counting(torch.nn.Module):
        def forward(self, images):
            seen.append(len(images))
            return torch.zeros(len(images), 3)

    seen, suite, config = [], ToySuite(), tiny_config(evaluate_limit=7)
    create_measure(rule, suite, suite.validation, config, CPU, ALONE)(Counting())
    assert seen == [7] * domains
    if rule != "oracle":
        seen.clear()
        validate(Counting(), suite, config, CPU, ALONE)
        assert seen == [7] * (1 + 5)


def test_a_choice_is_made_at_the_size_of_the_evaluation():
    class Pacs(ToySuite):
        image_size = (227, 227)

    class Size(torch.nn.Module):
        def forward(self, images):
            sizes.add(tuple(images.shape[2:]))
            return torch.zeros(len(images), 3)

    sizes, images = set(), ImageSet(np.zeros((2, 227, 227, 3), np.uint8), np.zeros(2, np.int64))
    create_measure("source-val", Pacs(), images, tiny_config(augment="pacs"), torch.device("cpu"), ALONE)(Size())
    assert sizes == {(222, 222)}
