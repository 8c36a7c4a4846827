"""Whether a file computes what the model does."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from asrnorm.errors import InputError
from asrnorm.exporting.base import Network, Subject
from asrnorm.exporting.trace import reference_path

# Of the largest logit. Another order of additions moves float32 logits by some 1e-7 a layer.
TOLERANCE = 1e-5
# A deep network enlarges rounding errors: the file may be this many times as far off as the model itself is.
_OWN_ERRORS = 4.0
_BATCHES = (1, 3, 8)  # that an open batch is tried with; tracing had two


@dataclass(frozen=True)
class Verdict:
    """How a file was tried.

    Attributes:
        relative_error: the largest difference of a logit, over the largest logit.
        tolerance: what was allowed.
        batches: numbers of images it was tried with.
    """

    relative_error: float
    tolerance: float
    batches: tuple[int, ...]


def verify(network: Network, subject: Subject, name: str) -> Verdict:
    """Compare a file with the model on random images.

    Args:
        network: what the file computes.
        subject: the model, and the shape of its images.
        name: of the file, for the message.

    Raises:
        InputError: they differ by more than rounding explains, or the model's own logits are not finite.
    """
    batches = _BATCHES if subject.batch is None else (subject.batch,)
    dtype = next(subject.model.parameters()).dtype
    generator = torch.Generator().manual_seed(0)
    exact_model = copy.deepcopy(subject.model).double()
    errors, roundings = [], []
    with reference_path(), torch.no_grad():
        for count in batches:
            images = torch.rand((count, 3, *subject.size), generator=generator).to(dtype)
            expected = subject.model(images)
            if not expected.isfinite().all():
                raise InputError(f"{name}: the model itself computes NaN or infinity; its weights may be damaged")
            roundings.append(relative_error(expected, exact_model(images.double())))
            errors.append(relative_error(network(images), expected))
    tolerance = max(TOLERANCE, _OWN_ERRORS * max(roundings))
    worst = next((error for error in errors if math.isnan(error)), max(errors))  # max() may pass NaN over
    if not worst <= tolerance:
        raise InputError(f"{name}: its logits are off by {worst:.1e} of the largest, {tolerance:.1e} would be rounding")
    return Verdict(worst, tolerance, batches)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest expected value.

    Example:
        >>> relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0]))
        0.25
    """
    if found.shape != expected.shape:
        return float("inf")
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((found.double() - expected.double()).abs().max() / scale.double())


def count_parameters(model: nn.Module) -> int:
    """Return the number of weights.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in model.parameters())
