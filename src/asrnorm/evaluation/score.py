"""Scores of a model: on one domain, on several, and on every domain of a suite."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import nan
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.precision import Precision
from asrnorm.core.results import DomainScore
from asrnorm.data import FileSet, ImageSet, Suite
from asrnorm.data.augment.named import Spec, network_size
from asrnorm.data.image_set import balanced_subset
from asrnorm.evaluation.adaptation import Adaptation, adapt_domains
from asrnorm.evaluation.inference import Forward, Inference, count_together
from asrnorm.evaluation.metrics import Tally

Images = ImageSet | FileSet
Domains = Iterable[tuple[str, Images]]
OnScore = Callable[[DomainScore], None]


@dataclass(frozen=True, kw_only=True)
class SuiteScore:
    """Scores of a model on the domains of a suite."""

    source: DomainScore  # on test images of the domains trained on
    domains: tuple[DomainScore, ...]  # on every available target, in the suite's order
    missing: tuple[str, ...]  # names of the targets that are not available

    @property
    def average_accuracy(self) -> float:
        """The unweighted mean over the available targets, NaN without any."""
        return sum(domain.accuracy for domain in self.domains) / len(self.domains) if self.domains else nan


def score(
    model: nn.Module,
    data: Images,
    *,
    name: str,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    world: World = ALONE,
) -> DomainScore:
    """Return accuracy, Brier score, NLL and ECE of a model on one domain.

    The model is evaluated in eval mode and then returns to the mode it was in, module by module. The number of
    processes does not change the result. The batch size changes it by rounding only, except with `bn_test`, whose
    predictions depend on the batch.

    Args:
        model: takes float images in [0, 1], returns logits.
        data: images and labels.
        name: of the domain.
        batch_size: the most images in a batch.
        device: of the model; `None` takes that of its parameters.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        world: the processes that share the work; all of them must call this.

    Raises:
        InputError: no images, labels without a logit, or NaN logits; the message names the domain.

    Example:
        >>> data = ImageSet(np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 0, 0, 1]))
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> _ = model[1].bias.data.copy_(torch.tensor([1.0, 0.0]))
        >>> score(model, data, name="black").accuracy
        0.75
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    return next(_score_each(inference, [(name, data)], batch_size, world))


def score_suite(
    model: nn.Module,
    suite: Suite,
    *,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | Literal["auto"] | None = "auto",
    world: World = ALONE,
    limit: int = 0,
    report: OnScore | None = None,
    adapt: Adaptation = "none",
    seed: int = 0,
    with_targets: bool = True,
) -> SuiteScore:
    """Return the scores of a model on the source's test images and on every available target.

    Of every domain at most `limit` images are scored, spread evenly over it (0: all), and `report` is called with each
    score, the source's first. `resize="auto"` is `evaluation_size`; the other options are those of `score`. With
    `adapt`, the model learns from each image before it classifies it, as TTT does, with draws by `seed`. Without
    `with_targets`, no target is looked at.
    """
    size = evaluation_size(suite) if resize == "auto" else resize
    inference = Inference.of(model, device=device, precision=precision, size=size)
    domains = islice(iterate_domains(suite), None if with_targets else 1)  # the source is the first
    if adapt == "none":
        source, *targets = _score_each(inference, domains, batch_size, world, limit, report)
    else:
        source, *targets = _score_adapting(inference, domains, adapt, seed, world, limit, report)
    return SuiteScore(source=source, domains=tuple(targets), missing=suite.missing_targets if with_targets else ())


def score_domains(
    model: nn.Module,
    domains: Mapping[str, Images],
    *,
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    world: World = ALONE,
    limit: int = 0,
    report: OnScore | None = None,
) -> tuple[DomainScore, ...]:
    """Return the scores of a model on domains without a suite, such as those of `asrnorm.data.labelled_folder`.

    The options are those of `score` and `score_suite`.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    return tuple(_score_each(inference, domains.items(), batch_size, world, limit, report))


def _score_each(
    inference: Inference, domains: Domains, batch_size: int, world: World, limit: int = 0, report: OnScore | None = None
) -> Iterator[DomainScore]:
    forward = Forward(inference)  # domains share its CUDA graphs
    for name, whole in domains:
        data = subsample(whole, limit)
        tally = Tally("cpu" if inference.device.type == "mps" else inference.device)  # MPS has no float64
        with evaluating(inference.model):
            together = count_together(inference, batch_size, inference.size or data.image_size)
            for _, batches, images, labels in iterate_bundles(data, batch_size, together, world):
                logits = forward(inference.to_input(images), batches)
                check_labels(labels, logits.shape[-1], name)
                tally.update(logits, torch.from_numpy(labels.copy()))
        domain = tally.result(name, world)
        if report is not None:
            report(domain)
        yield domain


def _score_adapting(
    inference: Inference,
    domains: Domains,
    adapt: Literal["slow", "online"],
    seed: int,
    world: World,
    limit: int,
    report: OnScore | None,
) -> Iterator[DomainScore]:
    chosen = [(name, subsample(whole, limit)) for name, whole in domains]
    tallies = [Tally("cpu" if inference.device.type == "mps" else inference.device) for _ in chosen]
    with evaluating(inference.model):
        for number, logits, labels in adapt_domains(inference, chosen, adapt, seed=seed, world=world):
            check_labels(labels, logits.shape[-1], chosen[number][0])
            tallies[number].update(logits, torch.from_numpy(labels.copy()))
    for (name, _), tally in zip(chosen, tallies, strict=True):
        domain = tally.result(name, world)
        if report is not None:
            report(domain)
        yield domain


def evaluation_size(suite: Suite, augment: Spec | None = None) -> tuple[int, int]:
    """Return the height and width at which a network for a suite is trained and evaluated.

    `augment` is its augmentation or chain in training; `None` is that of the recipes, which for PACS gives 222x222.
    """
    return network_size(suite.name if augment is None else augment, suite.image_size)


def iterate_domains(suite: Suite) -> Iterator[tuple[str, Images]]:
    """Yield the name and the images of the source's test set and of every available target, loaded one by one."""
    yield "+".join(suite.sources), suite.source_test
    yield from suite.targets.items()


def subsample(data: Images, limit: int) -> Images:
    """Return at most `limit` images, as many of each class, spread evenly over the set; all of them if `limit` is 0."""
    if limit <= 0 or len(data) <= limit:
        return data
    return data.take(balanced_subset(data.labels, limit))


def iterate_batches(
    data: Images, batch_size: int, world: World = ALONE
) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield this process's batches: number, images uint8 `(n, h, w, 3)`, labels `(n,)`.

    Processes share whole batches, so that every batch is the same for any number of processes: kernels round
    differently for other batch sizes, and `bn_test` normalizes by the batch. Batch b of B has the images b, b+B, b+2B,
    ...: sizes differ by at most one, without a short last batch, and sets sorted by class are mixed. Files are decoded
    batch by batch.
    """
    for bundle in iterate_bundles(data, batch_size, 1, world):
        yield bundle.number, bundle.images, bundle.labels


class Bundle(NamedTuple):
    """Batches of one size, concatenated: images uint8 `(n, h, w, 3)`, labels `(n,)`."""

    number: int
    batches: int
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def iterate_bundles(data: Images, batch_size: int, together: int, world: World = ALONE) -> Iterator[Bundle]:
    """Yield the batches of `iterate_batches`, up to `together` of one size at once; processes share whole bundles."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    num_batches = -(-len(data) // batch_size)
    num_larger = len(data) % num_batches if num_batches else 0  # the first batches have one image more than the others
    groups = [
        range(first, min(first + together, end))
        for begin, end in ((0, num_larger), (num_larger, num_batches))
        for first in range(begin, end, together)
    ]
    for number in range(len(groups))[world.share(len(groups))]:
        rows = [slice(batch, None, num_batches) for batch in groups[number]]
        images, labels = [data.read_rows(each) for each in rows], [data.labels[each] for each in rows]
        yield Bundle(number, len(rows), _join(images), _join(labels))


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_labels(labels: np.ndarray, num_classes: int, name: str) -> None:
    """Raise `InputError` if a domain has a label outside `0..num_classes - 1`."""
    if labels.min() < 0 or labels.max() >= num_classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"domain {name!r} has the label {wrong}; the model knows 0 to {num_classes - 1}")
