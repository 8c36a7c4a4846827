"""What an audit measures, and the numbers it finds."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from asrnorm.audit.paired import pack
from asrnorm.data.suites.cifar10c import GROUPS
from asrnorm.evaluation import ALEXNET_ERRORS, SignedSteps, Tally, decompose_brier, mean_corruption_error

SCHEMA = 1
CORRUPTIONS = tuple(name for names in GROUPS.values() for name in names)
_PGD_STEPS = 10
_MOST_SHOWN = 8  # broken images listed for the galleries
_MEANS = ("accuracy", "brier", "brier_sum", "nll", "ece")
_PARTS = ("reliability", "resolution", "uncertainty")
_IMAGENET_CLASSES, _IMAGENET_SEVERITIES = 1000, {1, 2, 3, 4, 5}  # of the benchmark that AlexNet's errors are from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The extent of an audit.

    Example:
        >>> [attack.name for attack in Plan.quick().attacks]
        ['fgsm-0.5', 'fgsm-1', 'fgsm-2', 'pgd10-1']
    """

    limit: int | None = 500  # maximum number of images; `None` takes all
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = CORRUPTIONS
    fgsm: tuple[float, ...] = (0.5, 1, 2, 4, 8)  # radii of the one-step attack, in levels of 255
    pgd: tuple[float, ...] = (0.5, 1, 2, 4, 8)  # radii of the attack in ten steps
    candidates: int = 100  # random tuples of transformations that the search tries
    search_images: int = 200  # images it judges them by, spread evenly
    seed: int = 0  # of noise, random starts and the search

    @classmethod
    def quick(cls, *, limit: int | None = 100, seed: int = 0) -> "Plan":
        """Return a plan that takes minutes on two cores for a ResNet-18 at 224x224."""
        severities, fgsm = (1, 3, 5), (0.5, 1, 2)
        return cls(limit=limit, severities=severities, fgsm=fgsm, pgd=(1,), candidates=30, search_images=50, seed=seed)

    @property
    def attacks(self) -> tuple[SignedSteps, ...]:
        """The attacks, weak ones first."""
        one_step = (SignedSteps(level, 1) for level in self.fgsm)
        return (*one_step, *(SignedSteps(level, _PGD_STEPS) for level in self.pgd))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a model on one version of the images; those of `DomainScore` first."""

    accuracy: float
    brier: float
    brier_sum: float
    nll: float
    ece: float
    num_samples: int
    bins: list[list[float]]  # for each of 15 bins of the largest probability: images, right ones, mean probability
    num_broken: int = 0  # images that are right when clean and wrong here
    # The most confident of these mistakes: row, predicted output, its probability.
    broken: list[list[float]] = dataclasses.field(default_factory=list)
    right: str = ""  # which images are right, as `paired.pack` writes them; empty for means over several versions
    reliability: float | None = None  # this and the next: parts of `brier_sum`; `None` where they were not measured yet
    resolution: float | None = None
    uncertainty: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """The worst tuple of transformations that the random search found for a model."""

    operations: list[tuple[str, float]]  # names and levels, in the order in which they are applied
    candidates: int  # number of tuples tried
    num_images: int  # by which they were judged
    wrong: int  # how many of those the model misclassifies under the worst tuple
    scores: Scores  # on all images under the tuple
    accuracy: dict[str, float]  # the same of every model, by name


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelAudit:
    """All numbers of one model."""

    name: str
    kind: str
    fingerprint: str
    num_classes: int
    classes: dict[int, str]  # names of the outputs that have images
    num_parameters: int | None
    input: str
    clean: Scores
    corruptions: dict[str, dict[int, Scores]]  # by name and severity
    attacks: dict[str, float]  # accuracy by attack; empty if the model has no gradients
    right_under_attack: dict[str, str]  # which images are right, by attack, as in `Scores.right`
    no_attacks: str  # why there are none; empty if there are
    search: Search

    def under(self, severity: int | None = None, names: Sequence[str] | None = None) -> Scores | None:
        """Return the mean over corruptions, of one severity or of all; `None` if none was measured."""
        scores = self.corrupted(severity, names)
        return average(scores) if scores else None

    def corrupted(self, severity: int | None = None, names: Sequence[str] | None = None) -> list[Scores]:
        """Return the scores under corruptions, of one severity or of all."""
        return [
            one
            for name, levels in self.corruptions.items()
            for level, one in levels.items()
            if (severity is None or level == severity) and (names is None or name in names)
        ]

    @property
    def corruption_error(self) -> float | None:
        """The mean error over corruptions and severities; `None` if none was measured."""
        return mean_corruption_error(self._errors()) if self.corruptions else None

    @property
    def mce(self) -> float | None:
        """The same relative to AlexNet's, for 1,000 classes and all of ImageNet-C's corruptions and severities."""
        levels = [set(levels) for name, levels in self.corruptions.items() if name in ALEXNET_ERRORS]
        is_whole = len(levels) == len(ALEXNET_ERRORS) and all(one == _IMAGENET_SEVERITIES for one in levels)
        if self.num_classes != _IMAGENET_CLASSES or not is_whole:
            return None
        return mean_corruption_error(self._errors(), ALEXNET_ERRORS)

    def _errors(self) -> dict[str, list[float]]:
        return {name: [1 - one.accuracy for one in levels.values()] for name, levels in self.corruptions.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """One or two models on the same images."""

    data: str
    num_images: int
    num_found: int
    skipped: tuple[str, ...]
    size: tuple[int, int]
    data_fingerprint: str
    classes: tuple[str, ...]  # names of the folders that have images
    severities: tuple[int, ...]
    seed: int
    models: tuple[ModelAudit, ...]
    not_available: dict[str, str]  # corruptions that could not be applied, with the reason and the fix
    seconds: float
    version: str
    schema: int = SCHEMA
    tensors: bool = False  # images were corrupted as tensors; the file has the field only then


def measure(logits_nk: Tensor, labels_n: Tensor, clean_n: Tensor | None = None) -> Scores:
    """Return the scores of logits; `clean_n` tells which images are right when clean, `None` that these are clean."""
    tally = Tally()
    tally.update(logits_nk, labels_n)
    score, parts = tally.result("images"), decompose_brier(logits_nk, labels_n)
    confidence_n, guess_n = logits_nk.double().softmax(1).max(1)
    broken = [] if clean_n is None else (clean_n & (guess_n != labels_n)).nonzero().flatten().tolist()
    most_confident = sorted(broken, key=lambda row: -float(confidence_n[row]))[:_MOST_SHOWN]
    return Scores(
        **{name: getattr(score, name) for name in _MEANS},
        num_samples=score.num_samples,
        bins=[[count, right, round(confidence, 6)] for count, right, confidence in tally.bins()],
        num_broken=len(broken),
        broken=[[row, int(guess_n[row]), round(float(confidence_n[row]), 4)] for row in most_confident],
        right=pack(guess_n == labels_n),
        **{name: getattr(parts, name) for name in _PARTS},
    )


def average(scores: Sequence[Scores]) -> Scores:
    """Return the mean of scores on equally many images, with their bins added up."""
    bins = []
    for rows in zip(*(one.bins for one in scores), strict=True):
        count, right = (sum(row[column] for row in rows) for column in (0, 1))
        bins.append([count, right, sum(row[0] * row[2] for row in rows) / count if count else 0.0])
    parts: dict[str, Any] = {}
    for name in _PARTS:
        values = [getattr(one, name) for one in scores]
        parts[name] = None if None in values else sum(values) / len(values)
    return Scores(
        **{name: sum(getattr(one, name) for one in scores) / len(scores) for name in _MEANS},
        num_samples=sum(one.num_samples for one in scores),
        bins=bins,
        num_broken=sum(one.num_broken for one in scores),
        **parts,
    )


def to_json(audit: Audit) -> dict[str, Any]:
    """Return an audit as plain values, with the averages that tables show."""
    values = dataclasses.asdict(audit)
    if not audit.tensors:
        del values["tensors"]
    for model, plain in zip(audit.models, values["models"], strict=True):
        # The file format calls the scores under the tuple a reading.
        plain["search"] = {"reading" if key == "scores" else key: value for key, value in plain["search"].items()}
        means = {"all": model.under(), **{str(level): model.under(level) for level in audit.severities}}
        plain["mean_corruption"] = {
            level: {name: getattr(mean, name) for name in (*_MEANS, *_PARTS)} for level, mean in means.items() if mean
        }
        plain["corruption_error"], plain["mce"] = model.corruption_error, model.mce
    return {"schema": values.pop("schema"), **values}
