"""Scores of logits, and their averages."""

import dataclasses

import pytest
import torch

from asrnorm.audit.result import ModelAudit, Scores, average, measure
from asrnorm.audit.summary import overconfidence
from asrnorm.evaluation import ALEXNET_ERRORS


def test_bins_agree_with_the_calibration_error():
    logits = 3 * torch.randn(400, 5)
    labels = torch.randint(5, (400,))
    scores = measure(logits, labels)
    gaps = [abs(right - count * confidence) for count, right, confidence in scores.bins]
    assert sum(gaps) / 400 == pytest.approx(scores.ece, abs=1e-5)
    assert sum(count for count, _, _ in scores.bins) == 400
    confidence = logits.softmax(1).amax(1).mean()
    assert overconfidence(scores) == pytest.approx(float(confidence) - scores.accuracy, abs=1e-5)


def test_broken_images_were_right_before_and_the_surest_come_first():
    guess = torch.arange(20) % 2
    logits = torch.nn.functional.one_hot(guess, 2) * torch.linspace(1, 5, 20)[:, None]
    labels = torch.zeros(20, dtype=torch.int64)
    clean = torch.ones(20, dtype=torch.bool)
    clean[19] = False
    scores = measure(logits, labels, clean)
    assert scores.num_broken == 9
    assert [row for row, _, _ in scores.broken] == [17, 15, 13, 11, 9, 7, 5, 3]
    assert all(answer == 1 for _, answer, _ in scores.broken)


def test_the_mean_confidence_of_a_bin_counts_images_and_not_scoress():
    one, other = (
        Scores(accuracy=0.5, brier=0.1, brier_sum=0.2, nll=1.0, ece=0.0, num_samples=10, bins=bins)
        for bins in ([[9, 6, 0.9], [1, 0, 0.3]], [[1, 1, 0.5], [0, 0, 0.0]])
    )
    first, second = average([one, other]).bins
    assert first == [10, 7, pytest.approx((9 * 0.9 + 0.5) / 10)]
    assert second == [1, 0, pytest.approx(0.3)]


def test_the_parts_of_the_brier_score_are_averaged_where_all_have_them():
    logits, labels = 2 * torch.randn(200, 4), torch.randint(4, (200,))
    one, other = measure(logits, labels), measure(logits.flip(0), labels)
    mean = average([one, other])
    assert one.brier_sum == pytest.approx(one.reliability - one.resolution + one.uncertainty, abs=0.02)
    assert mean.reliability == pytest.approx((one.reliability + other.reliability) / 2)
    assert average([one, dataclasses.replace(other, reliability=None)]).reliability is None


def make_audit(num_classes, severities=(1, 2, 3, 4, 5), without=()):
    """A model with half of AlexNet's errors."""
    clean = measure(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
    corruptions = {
        name: {level: dataclasses.replace(clean, accuracy=1 - error / 2) for level in severities}
        for name, error in ALEXNET_ERRORS.items()
        if name not in without
    }
    facts = dict.fromkeys((field.name for field in dataclasses.fields(ModelAudit)), None)
    return ModelAudit(**{**facts, "num_classes": num_classes, "clean": clean, "corruptions": corruptions})


def test_errors_are_relative_to_alexnets_for_1000_classes_and_the_whole_benchmark_only():
    plain = sum(ALEXNET_ERRORS.values()) / 2 / len(ALEXNET_ERRORS)
    assert make_audit(1000).mce == pytest.approx(0.5)
    assert make_audit(1000).corruption_error == pytest.approx(plain)
    assert make_audit(10).corruption_error == pytest.approx(plain)
    for other in (make_audit(10), make_audit(1000, severities=(1, 3, 5)), make_audit(1000, without=("fog",))):
        assert other.mce is None
    assert dataclasses.replace(make_audit(10), corruptions={}).corruption_error is None
