"""What an audit found: its schema, and writing `audit.json`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrnorm.core.files import write_whole

SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How a model does on one version of the images.

    Attributes:
        accuracy: a fraction; likewise below.
        brier: the mean square over classes, as the ASR-Norm paper has it.
        brier_sum: the sum over classes.
        nll: the negative log-likelihood.
        ece: expected calibration error, 15 bins of equal width.
        num_samples: images.
        bins: of the largest probability, 15 of equal width: images, right ones, mean probability.
        num_broken: images that are right when clean and wrong here.
        broken: of these the surest mistakes: row, output that was chosen, its probability.
    """

    accuracy: float
    brier: float
    brier_sum: float
    nll: float
    ece: float
    num_samples: int
    bins: list[list[float]]
    num_broken: int = 0
    broken: list[list[float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """The tuple of transformations that the random search found to hurt a model most.

    Attributes:
        operations: names and levels, in the order in which they are applied.
        candidates: tuples that were tried.
        num_images: images they were judged by.
        wrong: how many of those the worst tuple makes the model miss.
        accuracy: on all images under the tuple, by model.
    """

    operations: list[tuple[str, float]]
    candidates: int
    num_images: int
    wrong: int
    reading: Reading
    accuracy: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelAudit:
    """All numbers of one model.

    Attributes:
        num_classes: outputs.
        classes: names of the outputs that have images.
        corruptions: reading by corruption and severity.
        attacks: accuracy by attack; empty where there are no gradients.
        no_attacks: why there are none; else empty.
    """

    name: str
    kind: str
    fingerprint: str
    num_classes: int
    classes: dict[int, str]
    num_parameters: int | None
    input: str
    clean: Reading
    corruptions: dict[str, dict[int, Reading]]
    attacks: dict[str, float]
    no_attacks: str
    search: Search

    def under(self, severity: int | None = None, names: Sequence[str] | None = None) -> Reading | None:
        """Return the mean over corruptions, of one severity or of all; nothing where none was measured."""
        readings = [
            reading
            for name, levels in self.corruptions.items()
            for level, reading in levels.items()
            if (severity is None or level == severity) and (names is None or name in names)
        ]
        return average(readings) if readings else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """One or two models on the same images.

    Attributes:
        classes: names of the folders that have images.
        not_available: corruptions that could not be made, with the reason and the fix.
    """

    data: str
    num_images: int
    num_found: int
    skipped: tuple[str, ...]
    size: tuple[int, int]
    data_fingerprint: str
    classes: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    models: tuple[ModelAudit, ...]
    not_available: dict[str, str]
    seconds: float
    version: str
    schema: int = SCHEMA


def average(readings: Sequence[Reading]) -> Reading:
    """Return the mean of readings on equally many images, their bins added up.

    Example:
        >>> bins = [[2, 1, 0.5]] + [[0, 0, 0.0]] * 14
        >>> one = Reading(accuracy=0.5, brier=0.1, brier_sum=0.2, nll=1.0, ece=0.0, num_samples=2, bins=bins)
        >>> average([one, one]).accuracy, average([one, one]).bins[0]
        (0.5, [4, 2, 0.5])
    """
    fields = ("accuracy", "brier", "brier_sum", "nll", "ece")
    means = {name: sum(getattr(reading, name) for reading in readings) / len(readings) for name in fields}
    bins = []
    for several in zip(*(reading.bins for reading in readings), strict=True):
        count, right = (sum(one[column] for one in several) for column in (0, 1))
        bins.append([count, right, sum(one[0] * one[2] for one in several) / count if count else 0.0])
    return Reading(
        **means,
        num_samples=sum(reading.num_samples for reading in readings),
        bins=bins,
        num_broken=sum(reading.num_broken for reading in readings),
    )


def to_json(audit: Audit) -> dict[str, Any]:
    """Return an audit as plain values, with the averages that tables show."""
    values = dataclasses.asdict(audit)
    for model, plain in zip(audit.models, values["models"], strict=True):
        shifted = {str(level): model.under(level) for level in audit.severities}
        plain["mean_corruption"] = {
            level: _scores(reading) for level, reading in {"all": model.under(), **shifted}.items() if reading
        }
    return {"schema": values.pop("schema"), **values}


def write_json(path: Path, audit: Audit) -> None:
    """Write an audit under its name only when it is whole.

    Raises:
        StorageError: the disk is full or the place cannot be written; what was there stays.
    """
    write_whole(path, json.dumps(to_json(audit), indent=1))


def _scores(reading: Reading) -> dict[str, float]:
    return {name: getattr(reading, name) for name in ("accuracy", "brier", "brier_sum", "nll", "ece")}
