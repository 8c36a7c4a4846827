import pytest
import torch

from asrnorm.audit.finding import overconfidence
from asrnorm.audit.measure import MOST_SHOWN, measure


def test_bins_agree_with_the_calibration_error():
    logits = 3 * torch.randn(400, 5)
    labels = torch.randint(5, (400,))
    reading = measure(logits, labels)
    gaps = [abs(right - count * confidence) for count, right, confidence in reading.bins]
    assert sum(gaps) / 400 == pytest.approx(reading.ece, abs=1e-5)
    assert sum(count for count, _, _ in reading.bins) == 400
    confidence = logits.softmax(1).amax(1).mean()
    assert overconfidence(reading) == pytest.approx(float(confidence) - reading.accuracy, abs=1e-5)


def test_broken_images_were_right_before_and_the_surest_come_first():
    guess = torch.arange(20) % 2
    logits = torch.nn.functional.one_hot(guess, 2) * torch.linspace(1, 5, 20)[:, None]
    labels = torch.zeros(20, dtype=torch.int64)
    clean = torch.ones(20, dtype=torch.bool)
    clean[19] = False
    reading = measure(logits, labels, clean)
    assert reading.num_broken == 9
    assert [row for row, _, _ in reading.broken] == [17, 15, 13, 11, 9, 7, 5, 3][:MOST_SHOWN]
    assert all(answer == 1 for _, answer, _ in reading.broken)
