"""A set of images in batches, and each process's share of them.

Scores of a model: on one domain, and on every domain of a suite.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.core.precision import Precision
from asrnorm.core.results import DomainScore
from asrnorm.data import FileSet, ImageSet, Suite
from asrnorm.data.augment.named import network_size
from asrnorm.data.image import read_images
from asrnorm.data.image_set import choose_evenly
from asrnorm.evaluation.inference import Forward, Inference, count_together
from asrnorm.evaluation.metrics import Tally
from asrnorm.methods.frozen_eval import evaluating


def thin(data: ImageSet | FileSet, limit: int) -> ImageSet | FileSet:
    """Return at most `limit` images, as many of each class, spread evenly over the set.

    Example:
        >>> thin(ImageSet(np.zeros((6, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1, 0, 1])), 4).labels.tolist()
        [0, 1, 0, 1]
    """
    if limit <= 0 or len(data) <= limit:
        return data
    return data.take(choose_evenly(data.labels, limit))


def iterate_batches(
    data: ImageSet | FileSet, batch_size: int, world: World = ALONE
) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield this process's batches: number, images uint8 `(n, h, w, 3)`, labels `(n,)`.

    Whole batches are shared out, so that each is the same whatever the number of processes: kernels round otherwise in
    batches of another size, and `bn_test` looks at the whole batch. Batch b of B has the images b, b+B, b+2B, ...:
    sizes then differ by one at most, with no short batch at the end, and sets that lie sorted by class come mixed.

    Args:
        data: the images; of a set of files, a batch is decoded when its turn comes.
        batch_size: the most images in a batch.
        world: the processes that share the batches.

    Raises:
        InputError: a batch size below one, or a file that cannot be decoded.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> [labels.tolist() for _, _, labels in iterate_batches(data, 2)]
        [[0, 3], [1, 4], [2]]
    """
    for bundle in iterate_bundles(data, batch_size, 1, world):
        yield bundle.number, bundle.images, bundle.labels


class Bundle(NamedTuple):
    """Equally large batches, one after the other: images uint8 `(n, h, w, 3)`, labels `(n,)`."""

    number: int
    batches: int
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def iterate_bundles(data: ImageSet | FileSet, batch_size: int, together: int, world: World = ALONE) -> Iterator[Bundle]:
    """Yield the batches of `iterate_batches`, up to so many of one size together; whole bundles are shared out.

    Args:
        data: as for `iterate_batches`.
        batch_size: likewise.
        together: the most batches in a bundle.
        world: the processes that share the bundles.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> [(bundle.batches, bundle.labels.tolist()) for bundle in iterate_bundles(data, 2, 2)]
        [(2, [0, 3, 1, 4]), (1, [2])]
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    num_batches = -(-len(data) // batch_size)
    larger = len(data) % num_batches if num_batches else 0  # the first so many have one image more than the others
    parts = [
        range(first, min(first + together, end))
        for begin, end in ((0, larger), (larger, num_batches))
        for first in range(begin, end, together)
    ]
    for number in range(len(parts))[world.share(len(parts))]:
        rows = [slice(batch, None, num_batches) for batch in parts[number]]
        if isinstance(data, ImageSet):
            images = [data.images[each] for each in rows]
        else:
            images = [part for each in rows for part in read_images(data.paths[each], size=data.image_size)]
        labels = [data.labels[each] for each in rows]
        yield Bundle(number, len(rows), _join(images), _join(labels))


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


Size = tuple[int, int] | Literal["auto"] | None


@dataclass(frozen=True, kw_only=True)
class SuiteScore:
    """How a model does on the domains of a suite.

    Attributes:
        source: on test images of the domains trained on.
        domains: on every target that is there, in the suite's order.
        missing: names of the targets that are not there.
    """

    source: DomainScore
    domains: tuple[DomainScore, ...]
    missing: tuple[str, ...]

    @property
    def average_accuracy(self) -> float:
        """The unweighted mean over the targets that are there; NaN where none is."""
        return sum(domain.accuracy for domain in self.domains) / len(self.domains) if self.domains else nan


def score(
    model: nn.Module,
    data: ImageSet | FileSet,
    *,
    name: str,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    world: World = ALONE,
) -> DomainScore:
    """Return accuracy, Brier score, NLL and ECE of a model on one domain.

    The model is put in evaluation mode, and each of its parts back into its own mode afterwards. The number of
    processes does not change the result. Nor does the batch size, beyond the rounding of its kernels, except for
    `bn_test`, whose predictions depend on the batch.

    Args:
        model: takes float images in [0, 1], returns logits.
        data: images and labels.
        name: of the domain.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        world: the processes that share the work; all of them must call this.

    Raises:
        InputError: no images, labels that the model does not know, or NaN logits; the line names the domain.

    Example:
        >>> data = ImageSet(np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 0, 0, 1]))
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> _ = model[1].bias.data.copy_(torch.tensor([1.0, 0.0]))
        >>> score(model, data, name="black").accuracy
        0.75
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    return _score(inference, Forward(inference), data, name, batch_size, world)


def _score(
    inference: Inference, forward: Forward, data: ImageSet | FileSet, name: str, batch_size: int, world: World
) -> DomainScore:
    # Apple's GPUs have no float64.
    tally = Tally("cpu" if inference.device.type == "mps" else inference.device)
    with evaluating(inference.model):
        together = count_together(inference, batch_size, inference.size or data.image_size)
        for _, batches, images, labels in iterate_bundles(data, batch_size, together, world):
            logits = forward(inference.to_input(images), batches)
            check_labels(labels, logits.shape[-1], name)
            tally.update(logits, torch.from_numpy(labels.copy()))
    return tally.result(name, world)


def score_suite(
    model: nn.Module,
    suite: Suite,
    *,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: Size = "auto",
    world: World = ALONE,
    limit: int = 0,
    report: Callable[[DomainScore], None] | None = None,
) -> SuiteScore:
    """Return the scores of a model on the source's test images and on every target that is there.

    Args:
        model: as for `score`.
        suite: its classes are the model's.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: `auto` is `evaluation_size`.
        world: the processes that share the work; all of them must call this.
        limit: the most images of a domain, spread evenly over it; 0 takes all.
        report: told of every score as it is made, the source's first.

    Raises:
        InputError: as `score`, or the source is missing.
    """
    size = evaluation_size(suite) if resize == "auto" else resize
    inference = Inference.of(model, device=device, precision=precision, size=size)
    score_one = _scorer(inference, batch_size, world, limit, report)
    return SuiteScore(
        source=score_one("+".join(suite.sources), suite.source_test),
        domains=tuple(score_one(name, suite.targets[name]) for name in suite.target_names),
        missing=suite.missing_targets,
    )


def score_domains(
    model: nn.Module,
    domains: Mapping[str, ImageSet | FileSet],
    *,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    world: World = ALONE,
    limit: int = 0,
    report: Callable[[DomainScore], None] | None = None,
) -> tuple[DomainScore, ...]:
    """Return the scores of a model on domains that belong to no suite, such as `asrnorm.data.labelled_folder` opens.

    Args:
        model: as for `score`.
        domains: images and labels by name; labels are the model's.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        world: the processes that share the work; all of them must call this.
        limit: the most images of a domain, spread evenly over it; 0 takes all.
        report: told of every score as it is made.

    Raises:
        InputError: as `score`.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    score_one = _scorer(inference, batch_size, world, limit, report)
    return tuple(score_one(name, data) for name, data in domains.items())


def _scorer(
    inference: Inference, batch_size: int, world: World, limit: int, report: Callable[[DomainScore], None] | None
) -> Callable[[str, ImageSet | FileSet], DomainScore]:
    """Return a function that scores one domain after the other, by one captured network on a GPU."""
    forward = Forward(inference)

    def score_one(name: str, data: ImageSet | FileSet) -> DomainScore:
        domain = _score(inference, forward, thin(data, limit), name, batch_size, world)
        if report is not None:
            report(domain)
        return domain

    return score_one


def evaluation_size(suite: Suite, augment: str | None = None) -> tuple[int, int]:
    """Return height and width at which a network for a suite is evaluated: those it was trained at.

    Args:
        suite: of the network.
        augment: what it was trained with; where `None`, the recipes' own, by which it is 222x222 for PACS.

    Example:
        >>> from asrnorm.data import create_suite
        >>> evaluation_size(create_suite("pacs")), evaluation_size(create_suite("digits"))
        ((222, 222), (32, 32))
    """
    return network_size(suite.name if augment is None else augment, suite.image_size)


def check_labels(labels: np.ndarray, num_classes: int, name: str) -> None:
    """Refuse labels that a model has no logit for.

    Raises:
        InputError: with the label and the domain.
    """
    if labels.min() < 0 or labels.max() >= num_classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"domain {name!r} has the label {wrong}; the model knows 0 to {num_classes - 1}")
