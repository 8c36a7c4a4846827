"""One version of the images through one model: the numbers, and which images broke."""

import torch
from torch import Tensor

from asrnorm.audit.result import Reading
from asrnorm.evaluation import Tally
from asrnorm.evaluation.metrics import NUM_BINS, bin_edges

MOST_SHOWN = 8  # broken images that are kept, for the galleries


def measure(logits_nk: Tensor, labels_n: Tensor, clean_n: Tensor | None = None) -> Reading:
    """Return what logits are worth.

    Args:
        logits_nk: of all images.
        labels_n: the outputs that would be right.
        clean_n: bool, which images are right when clean; `None` where these are the clean ones.

    Example:
        >>> logits, labels = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
        >>> reading = measure(logits, labels, clean_n=torch.tensor([True, True]))
        >>> reading.accuracy, reading.num_broken, reading.broken
        (0.5, 1, [[1, 1, 0.9526]])
    """
    tally = Tally()
    tally.update(logits_nk, labels_n)
    score = tally.result("images")
    confidence_n, guess_n = logits_nk.double().softmax(1).max(1)
    right_n = guess_n == labels_n
    broken = [] if clean_n is None else (clean_n & ~right_n).nonzero().flatten().tolist()
    surest = sorted(broken, key=lambda row: -float(confidence_n[row]))[:MOST_SHOWN]
    return Reading(
        accuracy=score.accuracy,
        brier=score.brier,
        brier_sum=score.brier_sum,
        nll=score.nll,
        ece=score.ece,
        num_samples=score.num_samples,
        bins=_bins(confidence_n, right_n),
        num_broken=len(broken),
        broken=[[row, int(guess_n[row]), round(float(confidence_n[row]), 4)] for row in surest],
    )


def _bins(confidence_n: Tensor, right_n: Tensor) -> list[list[float]]:
    place_n = torch.bucketize(confidence_n, bin_edges())
    rows: list[list[float]] = []
    for number in range(NUM_BINS):
        inside_n = place_n == number
        count = int(inside_n.sum())
        mean = float(confidence_n[inside_n].mean()) if count else 0.0
        rows.append([count, int((inside_n & right_n).sum()), round(mean, 6)])
    return rows
