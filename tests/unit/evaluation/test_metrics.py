"""The metrics: against hand, torchmetrics and scikit-learn, and the promise that no cut into batches changes them."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from itertools import pairwise
from threading import Barrier

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.data.corruptions import CORRUPTIONS
from asrnorm.evaluation import ALEXNET_ERRORS, Tally, decompose_brier, mean_corruption_error


def measure(logits, labels, cuts=()):
    tally = Tally()
    edges = [0, *sorted(cuts), len(labels)]
    for start, stop in pairwise(edges):
        tally.update(logits[start:stop], labels[start:stop])
    return tally.result("toy")


@st.composite
def predictions(draw, most=40):
    num_samples, num_classes = draw(st.integers(1, most)), draw(st.integers(2, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e4]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    logits = (scale * torch.randn(num_samples, num_classes, generator=generator)).to(dtype)
    return logits, torch.randint(num_classes, (num_samples,), generator=generator)


class Threads(World):
    """Processes that are threads: `sum` waits for all of them."""

    def __init__(self, size):
        super().__init__(0, size)
        object.__setattr__(self, "barrier", Barrier(size))
        object.__setattr__(self, "parts", [])

    def sum(self, tensor):
        self.parts.append(tensor)
        self.barrier.wait(timeout=10)
        return torch.stack(self.parts).sum(0)


def test_by_hand():
    probability = torch.tensor(
        [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.65, 0.25, 0.1]], dtype=torch.float64
    )
    labels = torch.tensor([0, 2, 2, 1])
    score = measure(probability.log(), labels)
    assert score.name == "toy"
    assert score.num_samples == 4
    assert score.accuracy == 0.5
    brier_sum = ((0.09 + 0.04 + 0.01) + (0.01 + 0.36 + 0.49) + (0.09 + 0.09 + 0.36) + (0.4225 + 0.5625 + 0.01)) / 4
    assert score.brier_sum == pytest.approx(brier_sum, abs=1e-11)
    assert score.brier == pytest.approx(brier_sum / 3, abs=1e-11)
    assert score.nll == pytest.approx(-(math.log(0.7) + math.log(0.3) + math.log(0.4) + math.log(0.25)) / 4, abs=1e-11)
    # In fifteenths the confidences are 10.5, 9, 6 and 9.75, and a bin has its upper edge: each has one of its own.
    gaps = abs(1 - 0.7) + abs(0 - 0.6) + abs(1 - 0.4) + abs(0 - 0.65)
    assert score.ece == pytest.approx(gaps / 4, abs=1e-11)


@pytest.mark.parametrize(
    ("confidences", "expected"),
    [
        ((0.62, 0.65), abs(0.62 + 0.65 - 1) / 2),  # one bin: the gap of the means
        ((0.59, 0.65), (0.59 + abs(0.65 - 1)) / 2),  # two bins: the mean of the gaps
    ],
)
def test_samples_of_one_bin_are_averaged_before_their_gap_is_taken(confidences, expected):
    logits = torch.tensor([[c, 1 - c] for c in confidences], dtype=torch.float64).log()
    assert measure(logits, torch.tensor([1, 0])).ece == pytest.approx(expected, abs=1e-11)


def test_a_confidence_on_an_edge_is_in_the_bin_below():
    # Five fifteenths, and a little more than that: two bins, in which one is right and the other wrong.
    logits = torch.stack([torch.zeros(3, dtype=torch.float64), torch.tensor([0.36, 0.32, 0.32]).double().log()])
    confidence = logits.softmax(1).amax(1)
    assert float(confidence[0]) == 5 / 15
    assert measure(logits, torch.tensor([0, 1])).ece == pytest.approx(float(1 - confidence[0] + confidence[1]) / 2)


@given(predictions(most=200))
def test_against_torchmetrics(batch):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    logits, labels = batch
    probability = logits.double().softmax(1)
    score = measure(logits, labels)
    place = 15 * probability.max(1).values
    if (place - place.round()).abs().min() > 1e-6:  # on an edge it takes the other bin
        ece = functional.multiclass_calibration_error(probability, labels, probability.shape[1], n_bins=15, norm="l1")
        assert score.ece == pytest.approx(float(ece), abs=1e-6)
    accuracy = functional.multiclass_accuracy(probability, labels, probability.shape[1], average="micro")
    assert score.accuracy == pytest.approx(float(accuracy), abs=1e-6)


@given(predictions(most=200))
def test_against_scikit_learn(batch):
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = batch
    probability = logits.double().softmax(1)
    score = measure(logits, labels)
    classes = list(range(probability.shape[1]))
    brier = metrics.brier_score_loss(labels.numpy(), probability.numpy(), labels=classes, scale_by_half=False)
    assert score.brier_sum == pytest.approx(brier, abs=1e-9)
    assert score.accuracy == metrics.accuracy_score(labels.numpy(), logits.float().argmax(1).numpy())
    if probability.min() > 1e-12:  # it clips what lies nearer to zero
        nll = metrics.log_loss(labels.numpy(), probability.numpy(), labels=classes)
        assert score.nll == pytest.approx(nll, abs=1e-9)


@given(predictions(), st.lists(st.integers(0, 40), max_size=6))
def test_no_cut_into_batches_changes_a_bit(batch, cuts):
    logits, labels = batch
    assert measure(logits, labels, [min(cut, len(labels)) for cut in cuts]) == measure(logits, labels)


@given(predictions(), st.randoms(use_true_random=False))
def test_no_order_of_the_samples_changes_a_bit(batch, random):
    logits, labels = batch
    order = list(range(len(labels)))
    random.shuffle(order)
    assert measure(logits[order], labels[order], [len(order) // 2]) == measure(logits, labels)


@given(predictions(), st.integers(1, 5))
def test_any_number_of_processes_gives_the_same_bits(batch, size):
    logits, labels = batch
    tallies = [Tally() for _ in range(size)]
    for rank, tally in enumerate(tallies):
        share = World(rank, size).share(len(labels))
        tally.update(logits[share], labels[share])
    world = Threads(size)
    with ThreadPoolExecutor(size) as pool:
        scores = list(pool.map(lambda tally: tally.result("toy", world), tallies))
    assert scores == [measure(logits, labels)] * size


@given(predictions())
def test_ranges_and_relations(batch):
    logits, labels = batch
    num_classes = logits.shape[1]
    score = measure(logits, labels)
    assert 0 <= score.brier <= 2
    assert 0 <= score.brier_sum <= 2
    assert score.brier_sum == pytest.approx(num_classes * score.brier, abs=num_classes * 1e-11)
    assert 0 <= score.ece <= 1
    assert score.nll >= 0
    assert score.accuracy == (logits.argmax(1) == labels).sum().item() / len(labels)


@given(st.integers(2, 10), st.integers(1, 9), st.integers(1, 5))
def test_a_calibrated_model_has_no_calibration_error(num_classes, right, times):
    """Of ten samples with confidence c, 10 c are right."""
    if right / 10 <= 1 / num_classes:
        right = 10
    confidence = torch.tensor(right / 10, dtype=torch.float64)
    rest = (1 - confidence) / (num_classes - 1)
    row = torch.cat([confidence[None], rest.expand(num_classes - 1)]).clamp_min(1e-300).log()
    labels = torch.tensor(([0] * right + [1] * (10 - right)) * times)
    assert measure(row.expand(10 * times, num_classes), labels).ece == pytest.approx(0, abs=1e-11)


def test_certain_and_right_is_perfect_in_everything():
    score = measure(1e4 * torch.eye(5), torch.arange(5))
    assert astuple(score)[1:] == (1.0, 0.0, 0.0, 0.0, 0.0, 5)


def test_certain_and_wrong_is_the_worst_brier():
    score = measure(1e4 * torch.eye(5), (torch.arange(5) + 1) % 5)
    assert (score.accuracy, score.brier_sum, score.ece) == (0.0, 2.0, 1.0)
    assert score.nll == pytest.approx(1e4)


def test_a_huge_nll_does_not_overflow():
    score = measure(torch.tensor([[3e38, -3e38]]).expand(5000, 2), torch.ones(5000, dtype=torch.long))
    assert score.nll == 2.0**40


def test_small_differences_survive_many_samples():
    """Sums in float32 would lose the last digits; 200,000 samples of .1 do not."""
    logits = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log().expand(1000, 2)
    tally = Tally()
    for _ in range(200):
        tally.update(logits, torch.zeros(1000, dtype=torch.long))
    score = tally.result("toy")
    assert score.brier_sum == pytest.approx(0.02, abs=1e-11)
    assert score.nll == pytest.approx(-math.log(0.9), abs=1e-11)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers_are_refused_by_the_domain_s_name(value):
    logits = torch.zeros(4, 3)
    logits[2, 1] = value
    tally = Tally()
    tally.update(logits, torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match=r"^domain 'fog/3': .* 1 of 4 ") as caught:
        tally.result("fog/3")
    assert "\n" not in str(caught.value)


def test_no_sample_is_refused():
    with pytest.raises(InputError, match="'usps' has no images"):
        Tally().result("usps")


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3, 2), (4,)), ((3, 2), (3, 1))])
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(InputError):
        Tally().update(torch.zeros(shapes[0]), torch.zeros(shapes[1], dtype=torch.long))


@pytest.mark.gpu
def test_a_gpu_gives_the_numbers_of_the_cpu():
    logits, labels = 5 * torch.randn(1000, 10), torch.randint(10, (1000,))
    tally = Tally("cuda")
    tally.update(logits.cuda(), labels.cuda())
    assert astuple(tally.result("toy"))[1:] == pytest.approx(astuple(measure(logits, labels))[1:], abs=1e-11)


def decompose_by_loops(probabilities, labels, num_bins=15):
    """Murphy's parts, one class, bin and sample at a time."""
    num, classes = probabilities.shape
    parts = np.zeros(3)
    for k in range(classes):
        hits = (labels == k).astype(float)
        for b in range(num_bins):
            low, high = b / num_bins, (b + 1) / num_bins
            rows = [i for i in range(num) if low < probabilities[i, k] <= high]
            if rows:
                announced, seen = probabilities[rows, k].mean(), hits[rows].mean()
                parts += len(rows) / num * np.array([(announced - seen) ** 2, (seen - hits.mean()) ** 2, 0])
        parts[2] += hits.mean() * (1 - hits.mean())
    return parts


@pytest.mark.parametrize("classes", [2, 7])
def test_the_parts_of_the_brier_score_are_murphys_and_add_up(classes):
    generator = torch.Generator().manual_seed(classes)
    logits = 2 * torch.randn(300, classes, generator=generator)
    labels = torch.randint(classes, (300,), generator=generator)
    parts = decompose_brier(logits, labels)
    expected = decompose_by_loops(logits.double().softmax(1).numpy(), labels.numpy())
    assert parts[:3] == pytest.approx(expected, abs=1e-12)
    tally = Tally()
    tally.update(logits, labels)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(tally.result("toy").brier_sum, abs=1e-9)
    assert abs(parts.within_bins) < 0.01


def test_forecasts_of_a_few_values_have_exact_parts():
    # Two groups of four with probabilities 1/4 and 3/4; in the second, the announced share is right.
    first = torch.tensor([[0.75, 0.25]]).log().repeat(4, 1)
    logits = torch.cat([first, first.flip(1)])
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1, 0])
    parts = decompose_brier(logits, labels)
    assert parts.within_bins == pytest.approx(0, abs=1e-12)
    assert parts.reliability == pytest.approx(2 * 0.5 * 0.25**2)
    assert parts.resolution == pytest.approx(2 * 0.125**2)
    assert parts.uncertainty == pytest.approx(2 * 0.375 * 0.625)
    with pytest.raises(InputError):
        decompose_brier(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))


def test_a_large_set_is_binned_in_parts(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(100, 5, generator=generator), torch.randint(5, (100,), generator=generator)
    whole = decompose_brier(logits, labels)
    monkeypatch.setattr("asrnorm.evaluation.metrics._ROWS", 7)
    assert decompose_brier(logits, labels) == pytest.approx(whole, abs=1e-12)


def test_alexnet_has_a_mean_corruption_error_of_one_and_missing_corruptions_are_named():
    errors = {name: [error] * 5 for name, error in ALEXNET_ERRORS.items()}
    assert mean_corruption_error(errors, ALEXNET_ERRORS) == pytest.approx(1)
    assert mean_corruption_error(errors) == pytest.approx(np.mean(list(ALEXNET_ERRORS.values())))
    halved = {name: [error / 2] for name, error in ALEXNET_ERRORS.items()} | {"spatter": [0.9]}
    assert mean_corruption_error(halved, ALEXNET_ERRORS) == pytest.approx(0.5)
    with pytest.raises(InputError, match="fog"):
        mean_corruption_error({name: error for name, error in errors.items() if name != "fog"}, ALEXNET_ERRORS)
    with pytest.raises(InputError):
        mean_corruption_error({})


def test_alexnets_errors_are_those_of_the_benchmarks_corruptions():
    assert len(ALEXNET_ERRORS) == 15
    assert set(ALEXNET_ERRORS) < set(CORRUPTIONS)
    assert np.mean(list(ALEXNET_ERRORS.values())) == pytest.approx(0.7889, abs=1e-4)
