"""Results of a run: the schema of `result.json`, reading, writing and checking it."""

import dataclasses
import hashlib
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

from asrnorm.core.config import build
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.core.files import write_whole
from asrnorm.core.reading import parse_json, read_bytes, read_json

SCHEMA = 1
_ROUNDING = 1e-9
CHECKSUMS = ("weights_sha256", "config_sha256", "values_sha256")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainScore:
    """Scores of a model on one domain."""

    name: str
    accuracy: float  # in [0, 1]
    brier: float  # the paper's form, divided by the number of classes
    brier_sum: float  # the plain form
    nll: float
    ece: float  # expected calibration error, 15 equal-width bins
    num_samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of a run. `result.json` is written last: its presence means that the run is done.

    Results from before there were checksums have none of the three, and are not checked.
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
    # Accuracy on validation images of the source by selection rule, to choose settings without looking at targets.
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    # Provenance of a kept result, from the run's `env.json` (`studies.store.read_origin`); of a run that was scored
    # again, the edition of the test images and the scoring commit (`scored`). Results that differ only here are equal.
    origin: dict[str, str] = dataclasses.field(default_factory=dict)
    weights_sha256: str = ""  # of the bytes of `model.safetensors`
    config_sha256: str = ""  # of the bytes of `config.yaml`; an evaluation, whose config is no file, has none
    values_sha256: str = dataclasses.field(default="", compare=False)  # of all other values but `origin`, see `seal`
    schema: int = SCHEMA

    @property
    def commits(self) -> tuple[str, ...]:
        """Commit at which the run started, then those at which it was resumed."""
        return tuple(dict.fromkeys((self.commit, *self.origin.get("resumed", "").split())))


def to_plain(result: RunResult) -> dict[str, Any]:
    """Return a result as plain JSON values, schema first; empty optional fields are left out.

    A run without target domains has no average accuracy, stored as `null`.
    """
    values = dataclasses.asdict(result)
    if math.isnan(result.average_accuracy):
        values["average_accuracy"] = None
    for name in ("validation", "origin", *CHECKSUMS):
        if not values[name]:
            del values[name]
    return {"schema": values.pop("schema"), **values}


def seal(result: RunResult) -> RunResult:
    """Return a result with the checksum of its values, which `read_result` checks.

    It covers the values and not the text, so that it holds in a `result.json` and in a line of kept results alike, and
    leaves out `origin`, which is added when a result is kept.
    """
    return dataclasses.replace(result, values_sha256=_digest(result))


def _digest(result: RunResult) -> str:
    values = to_plain(dataclasses.replace(result, origin={}, values_sha256=""))
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def format_result(result: RunResult) -> str:
    """Return the text of a `result.json`."""
    return json.dumps(to_plain(result), indent=2, allow_nan=False)


def write_result(path: Path, result: RunResult) -> None:
    """Write a `result.json` atomically; errors are those of `write_whole`."""
    write_whole(path, format_result(result), follow_links=False)


def read_result(path: Path) -> RunResult:
    """Read a `result.json`; raise `InputError` if it is missing, damaged or has another schema."""
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no result; the run is not done") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path}: damaged ({error})") from error
    return parse_result(values, str(path))


def parse_result(values: object, where: str) -> RunResult:
    """Return the result of plain JSON values; raise `InputError` for another schema or numbers outside their range."""
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise InputError(f"{where}: not a result of schema {SCHEMA}")
    if values.get("average_accuracy", 0.0) is None:
        values = {**values, "average_accuracy": math.nan}
    try:
        result: RunResult = build(RunResult, values, f"{where}: not a whole result")
    except UnknownNameError as error:
        raise InputError(str(error)) from error
    _check_ranges(result, where)
    if result.values_sha256 and result.values_sha256 != _digest(result):
        raise InputError(f"{where}: damaged or edited, its values do not match their checksum")
    return result


def _check_ranges(result: RunResult, where: str) -> None:
    if not re.fullmatch("[0-9a-f]{10}", result.config_hash):
        raise InputError(f"{where}: {result.config_hash!r} is not the hash of a config: ten hexadecimal digits")
    accuracies = [domain.accuracy for domain in result.domains]
    named = {domain.name: domain.accuracy for domain in (result.source, *result.domains)}
    if accuracies:
        named["average"] = result.average_accuracy
    for name, value in {**named, **result.adversarial, **result.validation}.items():
        if not 0 <= value <= 1:
            raise InputError(f"{where}: accuracy {value} of {name} is outside [0, 1]")
    for domain in (result.source, *result.domains):
        for name, largest in (("brier", 1), ("brier_sum", 2), ("ece", 1), ("nll", math.inf)):
            value = getattr(domain, name)
            if not -_ROUNDING <= value <= largest + _ROUNDING or math.isinf(value):
                raise InputError(f"{where}: {name} {value} of {domain.name} is outside [0, {largest}]")
        if domain.num_samples < 1:
            raise InputError(f"{where}: {domain.name} has {domain.num_samples} images; a scored domain has at least 1")
    if not (0 <= result.wall_seconds < math.inf and result.steps >= 0):
        raise InputError(f"{where}: negative or infinite wall_seconds or steps")
    if accuracies and not math.isclose(statistics.fmean(accuracies), result.average_accuracy, abs_tol=_ROUNDING):
        raise InputError(f"{where}: average_accuracy is not the mean over the domains")


def read_log_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `log.jsonl` up to the first incomplete line; no rows if there is no log."""
    if not path.exists():
        return []
    rows = []
    for line in read_bytes(path).decode("utf-8", errors="replace").splitlines():
        try:
            row = parse_json(line)
        except InputError:
            break
        if not isinstance(row, dict) or not _is_row(row):
            break
        rows.append(row)
    return rows


def _is_row(row: dict[str, Any]) -> bool:
    """Tell whether a row of a log has numbers where readers expect them."""
    lambdas = row.get("lambdas", {})
    if type(row.get("step")) is not int or not isinstance(lambdas, dict):
        return False
    layers = list(lambdas.values())
    numbers = [row[name] for name in ("loss", "accuracy") if name in row]
    numbers += [value for layer in layers if isinstance(layer, dict) for value in layer.values()]
    return all(isinstance(layer, dict) for layer in layers) and all(type(value) in (int, float) for value in numbers)


def read_environment(path: Path) -> dict[str, Any]:
    """Return what an `env.json` says of a run when it was last resumed; empty if it cannot be read.

    The file holds the environment at the start, and under `resumed` what had changed at each resume.
    """
    try:
        first = read_json(path)
    except (OSError, InputError):
        return {}
    resumed = first.get("resumed") if isinstance(first, dict) else None
    parts = [first, *(resumed if isinstance(resumed, list) else [])]
    return {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}
