"""Accuracy, Brier score, NLL and calibration error of logits, summed exactly.

The values of every sample are computed in float64 and added as integer multiples of $2^{-40}$, which is exact in any
order: every split into batches and every number of processes gives the same bits.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.core.results import DomainScore

NUM_BINS = 15
# AlexNet's mean top-1 errors over the five severities of ImageNet-C, by which its authors normalize others': Hendrycks
# and Dietterich, github.com/hendrycks/robustness, ImageNet-C/test.py.
ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640,
    "defocus_blur": 0.819880, "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360,
    "snow": 0.866816, "frost": 0.826572, "fog": 0.819324, "brightness": 0.564592,
    "contrast": 0.853204, "elastic_transform": 0.646056, "pixelate": 0.717840, "jpeg_compression": 0.606500,
}  # fmt: skip
_ROWS = 4096  # samples of which all probabilities are binned at a time
_FRACTION_BITS = 40
_UNIT = 1 << _FRACTION_BITS
_MAX_VALUE = 2.0**40  # of one sample's NLL, so that a diverged network does not overflow the sum
_NUM_SUMS = NUM_BINS + 3  # confidence per bin, then brier, brier_sum and nll


class Tally:
    r"""Running metrics of a domain, updated with batches of logits.

    With $p$ the softmax of a sample's logits, $y$ its label as a unit vector and $K$ classes, the means over samples of
    $[\arg\max p = y]$ (accuracy), $\sum_k (p_k - y_k)^2$ (`brier_sum`), that over $K$ (`brier`, the paper's form),
    $-\log p_y$ (`nll`); and $\sum_b \frac{|B_b|}{n} |\mathrm{acc}(B_b) - \mathrm{conf}(B_b)|$ (`ece`) over 15 bins
    $(\frac{b}{15}, \frac{b+1}{15}]$ of the largest probability.

    Logits are moved to `device`, which has the sums; only `result` waits for it.

    Example:
        >>> tally = Tally()
        >>> tally.update(torch.tensor([[0.0, 0.0], [9.0, -9.0]]), torch.tensor([1, 0]))
        >>> score = tally.result("toy")
        >>> score.accuracy, round(score.brier_sum, 3), round(score.nll, 3), round(score.ece, 3)
        (0.5, 0.25, 0.347, 0.25)
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._counts = torch.zeros((NUM_BINS, 2), dtype=torch.int64, device=self.device)  # samples, correct ones
        self._sums = torch.zeros((_NUM_SUMS, 2), dtype=torch.int64, device=self.device)  # integer part, fraction
        self._num_nonfinite = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._edges = torch.linspace(0, 1, NUM_BINS + 1, dtype=torch.float64)[1:-1].to(self.device)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits `(n, K)` of any floating dtype, and labels below K, int64 `(n,)`."""
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            shapes = f"{tuple(logits.shape)} and {tuple(labels.shape)}"
            raise InputError(f"expected logits (n, num_classes) and labels (n,), got {shapes}")
        logits_nk = logits.detach().to(self.device).double()
        labels_n = labels.to(self.device)
        finite_n = logits_nk.isfinite().all(1)
        self._num_nonfinite += (~finite_n).sum()
        logits_nk = logits_nk.where(finite_n[:, None], 0.0)  # `result` raises; the sums stay valid

        probability_nk = logits_nk.softmax(1)
        confidence_n, prediction_n = probability_nk.max(1)
        label_nk = torch.zeros_like(probability_nk).scatter_(1, labels_n[:, None], 1.0)
        brier_n = (probability_nk - label_nk).square().sum(1)
        nll_n = -logits_nk.log_softmax(1).gather(1, labels_n[:, None])[:, 0]

        bin_n = torch.bucketize(confidence_n, self._edges)
        in_bin_nb = bin_n[:, None] == torch.arange(NUM_BINS, device=self.device)
        correct_n = prediction_n == labels_n
        self._counts[:, 0] += in_bin_nb.sum(0)
        self._counts[:, 1] += (in_bin_nb & correct_n[:, None]).sum(0)
        confidence_nb = torch.where(in_bin_nb, confidence_n[:, None], 0.0)
        others_n3 = torch.stack([brier_n / logits.shape[1], brier_n, nll_n], 1)
        self._add(torch.cat([confidence_nb, others_n3], 1))

    def _add(self, values_ns: Tensor) -> None:
        values_ns = values_ns.clamp(0.0, _MAX_VALUE)
        whole_ns = values_ns.floor()
        fraction_ns = ((values_ns - whole_ns) * _UNIT).floor()
        self._sums[:, 0] += whole_ns.long().sum(0)
        self._sums[:, 1] += fraction_ns.long().sum(0)
        self._sums[:, 0] += self._sums[:, 1] >> _FRACTION_BITS
        self._sums[:, 1] &= _UNIT - 1

    def bins(self) -> list[list[float]]:
        """Return samples, correct ones and mean confidence of each bin, over the batches of this process."""
        sums = (self._sums[:NUM_BINS, 0] + self._sums[:NUM_BINS, 1].double() / _UNIT).tolist()
        return [[n, right, total / max(n, 1)] for (n, right), total in zip(self._counts.tolist(), sums, strict=True)]

    def result(self, name: str, world: World = ALONE) -> DomainScore:
        """Return the score over the batches of all processes; every process must call it."""
        state = world.sum(torch.cat([self._num_nonfinite, self._counts.flatten(), self._sums.flatten()])).tolist()
        nonfinite, counts, sums = state[0], state[1 : 1 + 2 * NUM_BINS], state[1 + 2 * NUM_BINS :]
        num_samples, num_correct = sum(counts[::2]), sum(counts[1::2])
        if num_samples == 0:
            raise InputError(f"domain {name!r} has no images to score")
        if nonfinite:
            raise InputError(
                f"domain {name!r}: NaN or infinite logits for {nonfinite:,} of {num_samples:,} images; "
                "the network has diverged, or its weights are damaged"
            )
        # Python's integers are unbounded, and their quotient is rounded once.
        units = [whole * _UNIT + fraction for whole, fraction in zip(sums[::2], sums[1::2], strict=True)]
        gap = sum(abs(units[b] - counts[2 * b + 1] * _UNIT) for b in range(NUM_BINS))
        total = num_samples * _UNIT
        brier, brier_sum, nll = (units[row] / total for row in range(NUM_BINS, _NUM_SUMS))
        return DomainScore(
            name=name,
            accuracy=num_correct / num_samples,
            brier=brier,
            brier_sum=brier_sum,
            nll=nll,
            ece=gap / total,
            num_samples=num_samples,
        )


class BrierParts(NamedTuple):
    """`brier_sum` is `reliability - resolution + uncertainty + within_bins`."""

    reliability: float  # how far probabilities are from the frequencies they announce; 0 is best
    resolution: float  # how far these frequencies are from those of all samples; larger is better
    uncertainty: float  # of the labels, whatever the model
    within_bins: float  # from taking the probabilities of a bin for one


def decompose_brier(logits: Tensor, labels: Tensor) -> BrierParts:
    r"""Return reliability, resolution and uncertainty, which the Brier score of logits is made of (Murphy, 1973).

    Each class is a yes-or-no forecast. With $n_{kb}$ samples in bin $b$ of the probabilities of class $k$, their mean
    probability $\bar p_{kb}$, the share $\bar y_{kb}$ of them that has this class, and its share $\bar y_k$ of all $n$:
    $\sum_{kb} \frac{n_{kb}}{n} (\bar p_{kb} - \bar y_{kb})^2$ (reliability),
    $\sum_{kb} \frac{n_{kb}}{n} (\bar y_{kb} - \bar y_k)^2$ (resolution), and
    $\sum_k \bar y_k (1 - \bar y_k)$ (uncertainty). The bins are those of the calibration error.

    Example:
        >>> parts = decompose_brier(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
        >>> parts.reliability, parts.resolution, parts.uncertainty
        (0.0, 0.0, 0.5)
    """
    num, classes = logits.shape
    if not num:
        raise InputError("the Brier score of no samples has no parts")
    edges = torch.linspace(0, 1, NUM_BINS + 1, dtype=torch.float64)[1:-1]
    # Samples, probabilities, labels and squared errors by class and bin.
    sums_4m = torch.zeros(4, classes * NUM_BINS, dtype=torch.float64)
    for logits_nk, labels_n in zip(logits.detach().cpu().split(_ROWS), labels.cpu().split(_ROWS), strict=True):
        probability_nk = logits_nk.double().softmax(1)
        label_nk = torch.zeros_like(probability_nk).scatter_(1, labels_n[:, None], 1.0)
        bin_nk = torch.bucketize(probability_nk, edges) + NUM_BINS * torch.arange(classes)
        terms = (torch.ones_like(label_nk), probability_nk, label_nk, (probability_nk - label_nk).square())
        for row, term_nk in enumerate(terms):
            sums_4m[row].index_add_(0, bin_nk.flatten(), term_nk.flatten())
    count_kb, probability_kb, label_kb, error_kb = sums_4m.reshape(4, classes, NUM_BINS)
    share_k = label_kb.sum(1, keepdim=True) / num
    filled_kb = count_kb.clamp_min(1.0)
    reliability = (count_kb * ((probability_kb - label_kb) / filled_kb).square()).sum() / num
    resolution = (count_kb * (label_kb / filled_kb - share_k).square()).sum() / num
    uncertainty = (share_k * (1 - share_k)).sum()
    within = error_kb.sum() / num - (reliability - resolution + uncertainty)
    return BrierParts(float(reliability), float(resolution), float(uncertainty), float(within))


def mean_corruption_error(errors: Mapping[str, Iterable[float]], baseline: Mapping[str, float] | None = None) -> float:
    """Return the mean over corruptions of the mean error over severities, each relative to a baseline if there is one.

    A baseline has the mean error of another network by corruption, such as `ALEXNET_ERRORS` for ImageNet; the mean is
    then over its corruptions, all of which must be there.

    Example:
        >>> mean_corruption_error({"fog": [0.25, 0.5], "snow": [0.5, 0.75]}, {"fog": 0.75})
        0.5
    """
    baseline = dict.fromkeys(errors, 1.0) if baseline is None else baseline
    if not baseline or baseline.keys() - errors.keys():
        missing = ", ".join(sorted(baseline.keys() - errors.keys())) or "all"
        raise InputError(f"the mean corruption error needs all corruptions of its baseline; missing: {missing}")
    return fmean(fmean(errors[name]) / error for name, error in baseline.items())
