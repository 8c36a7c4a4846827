"""The result of a run: its schema, and reading and writing `result.json`."""

import dataclasses
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

from asrnorm.core.config import build
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.core.files import write_whole

SCHEMA = 1
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainScore:
    """How a model does on one domain.

    Attributes:
        accuracy: a fraction.
        brier: the paper's form, divided by the number of classes.
        brier_sum: the plain form.
        ece: expected calibration error, 15 bins of equal width.
    """

    name: str
    accuracy: float
    brier: float
    brier_sum: float
    nll: float
    ece: float
    num_samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """What is kept of a run; `result.json` is written last, and its presence means done.

    Attributes:
        validation: accuracy of the reported model on validation images of the source by selection rule, where the suite
            has such images: what one setting may be chosen over another by.
        origin: of a kept result, what `env.json` says of its run: device, version of torch, day, edition of the test
            images, the commits at which it was resumed, where they are others, and a digest of the names of images of
            one's own; of a run scored again, the edition and which commit scored it on what (`scored`). Results that
            differ in it alone are the same.
    """

    recipe: str
    scale: str
    seed: int
    config_hash: str
    commit: str
    selection: str
    num_parameters: int
    source: DomainScore
    domains: tuple[DomainScore, ...]
    missing: tuple[str, ...]
    average_accuracy: float
    adversarial: dict[str, float]
    wall_seconds: float
    steps: int
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    origin: dict[str, str] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def commits(self) -> tuple[str, ...]:
        """That of the start, and those at which the run was gone on with, as far as its origin says."""
        return tuple(dict.fromkeys((self.commit, *self.origin.get("resumed", "").split())))


def to_plain(result: RunResult) -> dict[str, Any]:
    """Return a result as JSON has it, the schema first; validation and origin are left out where there is none.

    Without a target there is no average: `null`, since JSON knows no NaN.
    """
    values = dataclasses.asdict(result)
    if math.isnan(result.average_accuracy):
        values["average_accuracy"] = None
    for name in ("validation", "origin"):  # many suites have no validation images; a result.json has no origin
        if not values[name]:
            del values[name]
    return {"schema": values.pop("schema"), **values}


def format_result(result: RunResult) -> str:
    """Return the text of a `result.json`."""
    return json.dumps(to_plain(result), indent=2, allow_nan=False)


def write_result(path: Path, result: RunResult) -> None:
    """Write a result under its final name only when it is whole.

    Raises:
        StorageError: the disk is full or the place cannot be written; what was there stays.
    """
    write_whole(path, format_result(result))


def read_result(path: Path) -> RunResult:
    """Read a `result.json`.

    Raises:
        InputError: missing, damaged, or of another schema.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no result; the run is not done") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error})") from error
    return parse_result(values, str(path))


def parse_result(values: object, where: str) -> RunResult:
    """Return the result that plain values describe.

    Args:
        values: what JSON read.
        where: what they come from, for messages.

    Raises:
        InputError: damaged, of another schema, or with numbers that no run gives.
    """
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise InputError(f"{where}: not a result of schema {SCHEMA}")
    if values.get("average_accuracy", 0.0) is None:
        values = {**values, "average_accuracy": math.nan}
    try:
        result: RunResult = build(RunResult, values, f"{where}: not a whole result")
    except UnknownNameError as error:
        raise InputError(str(error)) from error
    _refuse_impossible(result, where)
    return result


def _refuse_impossible(result: RunResult, where: str) -> None:
    if not re.fullmatch("[0-9a-f]{10}", result.config_hash):
        raise InputError(f"{where}: {result.config_hash!r} is not the hash of a config: ten hexadecimal digits")
    accuracies = [domain.accuracy for domain in result.domains]
    average = [result.average_accuracy] if accuracies else []  # of no domain there is none
    if not all(0 <= value <= 1 for value in (result.source.accuracy, *accuracies, *average)):
        raise InputError(f"{where}: an accuracy that is not between 0 and 1")
    for domain in (result.source, *result.domains):
        errors = (domain.brier, domain.ece, domain.brier_sum / 2)  # at most 1, and 2 of the plain Brier score
        if not all(-_ROUNDING <= value <= 1 + _ROUNDING for value in errors):
            raise InputError(f"{where}: a Brier score or calibration error that no predictions have, on {domain.name}")
        if not (-_ROUNDING <= domain.nll < math.inf and domain.num_samples > 0):
            raise InputError(f"{where}: a log-loss or number of images that no scoring gives, on {domain.name}")
    shares = (*result.adversarial.values(), *result.validation.values())
    if not all(0 <= value <= 1 for value in shares):
        raise InputError(f"{where}: an accuracy under attack or in validation that is not between 0 and 1")
    if not (0 <= result.wall_seconds < math.inf and result.steps >= 0):
        raise InputError(f"{where}: a time or number of steps that no run takes")
    if accuracies and not math.isclose(statistics.fmean(accuracies), result.average_accuracy, abs_tol=_ROUNDING):
        raise InputError(f"{where}: an average that is not that of its domains")


def read_log_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's `log.jsonl`, none where there is no log; a line that a kill cut short ends it."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        rows.append(row)
    return rows
