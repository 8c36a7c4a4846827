"""Finds results and logs: in run folders, and in the kept `results/*.jsonl` with `results/details/<run>/`.

A result is identified by the hash of its config. A details folder holds what figures need of a run, under the file
names of a run folder.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.files import describe_failure
from asrnorm.core.reading import parse_json, read_bytes, read_json
from asrnorm.core.results import CHECKSUMS, RunResult, parse_result, read_log_rows, read_result, to_plain

DETAILS = "details"
KEPT_FILES = "[!.]*.jsonl"  # hidden ones are what killed processes left
CURVES_FILE = "curves.csv"  # a few kilobytes of the log, kept in a details folder
MAX_CURVE_ROWS = 60  # enough for a curve in a figure
_CURVES = ("loss", "accuracy")
T = TypeVar("T")
_ORIGIN = ("device", "torch", "day", "edition", "resumed", "listing")


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """A result and its location."""

    result: RunResult
    folder: Path | None = None  # the run folder; for a kept result the details folder, if there is one
    scored_again: bool = False  # an evaluation of the run under another config
    kept: bool = False  # a line of a kept file


@dataclass(frozen=True, kw_only=True)
class Store:
    """All results and details folders, by the hash of the run's config."""

    results: Mapping[str, StoredResult]  # from run folders, and from kept files where no run folder has the result
    problems: tuple[str, ...] = ()  # one line for each result that cannot be read
    details: Mapping[str, Path] = field(default_factory=dict)
    lines: Mapping[str, RunResult] = field(default_factory=dict)  # kept results, also those that a run folder has


def find_results(runs: Path, kept: Path | None = None) -> Store:
    """Return every result; one in a run folder takes precedence over the same one in a kept file."""
    found: dict[str, StoredResult] = {}
    problems: list[str] = []
    for folder in sorted(path for path in runs.glob("*") if path.is_dir()):
        for path in (folder / "result.json", *sorted(folder.glob("evaluations/[!.]*.json"))):
            if not path.exists():
                continue
            try:
                result = read_result(path)
            except AsrnormError as error:
                problems.append(str(error))
                continue
            # An evaluation records the edition of its own test images, which may differ from the run's.
            result = replace(result, origin={**read_origin(folder / "env.json"), **result.origin})
            again = path.parent != folder
            found.setdefault(result.config_hash, StoredResult(result=result, folder=folder, scored_again=again))
    details = {} if kept is None else find_details(kept)
    lines: dict[str, tuple[str, RunResult]] = {}
    for path in () if kept is None else sorted(kept.glob(KEPT_FILES)):
        for where, line in _parse_lines(path):
            if isinstance(line, InputError):
                problems.append(str(line))
                continue
            identity = line.config_hash
            first, before = lines.setdefault(identity, (where, line))
            if is_same(before, line):
                found.setdefault(identity, StoredResult(result=line, folder=details.get(identity), kept=True))
            else:
                problems.append(f"{where}: run {identity} has other numbers in {first}, which count; remove one")
    return Store(
        results=found,
        problems=tuple(problems),
        details=details,
        lines={identity: result for identity, (_, result) in lines.items()},
    )


def holds_result(path: Path, config_hash: str) -> bool:
    """Return whether a file is a complete result of this config."""
    try:
        return read_result(path).config_hash == config_hash
    except AsrnormError:
        return False


def find_details(kept: Path) -> dict[str, Path]:
    """Return the details folders by the hash at the end of their names."""
    return {path.name.rpartition("--")[2]: path for path in sorted(kept.glob(f"{DETAILS}/*--*")) if path.is_dir()}


def read_lines(path: Path) -> list[RunResult]:
    """Return all results of a kept file, none without a file; raise `InputError` for a line that is not a result."""
    found: dict[str, RunResult] = {}
    for where, result in _parse_lines(path) if path.exists() else ():
        if isinstance(result, InputError):
            raise result
        if not is_same(found.setdefault(result.config_hash, result), result):
            raise InputError(f"{where}: run {result.config_hash} has other numbers further up; remove one")
    return list(found.values())


def _parse_lines(path: Path) -> Iterator[tuple[str, RunResult | InputError]]:
    """Yield the location of every line of a kept file that is not blank, and its result or what is wrong with it."""
    try:
        lines = read_bytes(path).splitlines()
    except (OSError, InputError) as error:
        yield str(path), InputError(describe_failure(error, path)) if isinstance(error, OSError) else error
        return
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        result: RunResult | InputError
        try:
            values = parse_json(line)
        except InputError as error:
            yield where, InputError(f"{where}: not a line of JSON ({error}); mend or remove it")
            continue
        try:
            result = parse_result(values, where)
        except InputError as error:
            result = InputError(f"{error}; mend or remove the line")
        yield where, result


def is_same(one: RunResult, other: RunResult) -> bool:
    """Return whether two results are equal except for origin and checksums, which older results lack."""

    def plain(result: RunResult) -> str:  # as text, so that NaN equals NaN
        values = to_plain(replace(result, origin={}))
        return json.dumps({name: value for name, value in values.items() if name not in CHECKSUMS})

    return one is other or plain(one) == plain(other)


def has_same_numbers(one: RunResult, other: RunResult) -> bool:
    """Return whether two results differ only in commit, wall time and origin."""
    return is_same(one, replace(other, commit=one.commit, wall_seconds=one.wall_seconds))


def read_origin(path: Path) -> dict[str, str]:
    """Return the latest device, library versions, date and data in an `env.json`; empty if it cannot be read."""
    try:
        first = read_json(path)
        latest = {key: value for part in (first, *first.get("resumed", ())) for key, value in part.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
    latest["device"] = latest.get("gpu") or latest.get("device")
    later = dict.fromkeys(str(part["commit"]) for part in first.get("resumed", ()) if part.get("commit"))
    latest["resumed"] = " ".join(commit for commit in later if commit != first.get("commit"))
    return {name: str(latest[name]) for name in _ORIGIN if latest.get(name)}


def read_log(folder: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a run's log up to a damaged one, or of the curves kept of it, or none."""
    if folder is None:
        return []
    try:
        if (folder / "log.jsonl").is_file():
            return read_log_rows(folder / "log.jsonl")
        if (folder / CURVES_FILE).is_file():
            return list(parse_curves(read_bytes(folder / CURVES_FILE).decode("utf-8", errors="replace")))
    except (OSError, InputError):  # one log that cannot be read must not stop a report on all runs
        pass
    return []


def format_curves(rows: Sequence[dict[str, Any]]) -> str:
    """Return loss, accuracy and lambdas of a log as CSV with four digits, at most `MAX_CURVE_ROWS` rows of each."""
    chosen: dict[int, dict[str, Any]] = {}
    for some in ([row for row in rows if row.get("lambdas")], [row for row in rows if "loss" in row]):
        chosen |= {row["step"]: row for row in subsample(some, MAX_CURVE_ROWS)}
    lines = [chosen[step] for step in sorted(chosen)]
    names = list(dict.fromkeys(name for row in lines for name in _flatten_lambdas(row)))
    written = [["step", *_CURVES, *names]]
    for row in lines:
        lambdas = _flatten_lambdas(row)
        values = [*(row.get(name) for name in _CURVES), *(lambdas.get(name) for name in names)]
        written.append([str(row["step"]), *("" if value is None else f"{value:.4g}" for value in values)])
    return "".join(f"{','.join(words)}\n" for words in written)


def parse_curves(text: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that `format_curves` wrote, up to the first that is incomplete."""
    heads, *lines = (line.split(",") for line in text.split("\n"))
    for words in lines:
        if len(words) != len(heads) or not re.fullmatch("[0-9]{1,18}", words[0]):
            return
        row: dict[str, Any] = {"step": int(words[0])}
        for head, word in zip(heads[1:], words[1:], strict=True):
            if not word:
                continue
            try:
                value = float(word)
            except ValueError:
                return
            layer, slash, name = head.rpartition("/")
            if slash:
                row.setdefault("lambdas", {}).setdefault(layer, {})[name] = value
            else:
                row[head] = value
        yield row


def subsample(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _flatten_lambdas(row: dict[str, Any]) -> dict[str, float]:
    return {
        f"{layer}/{name}": value for layer, values in row.get("lambdas", {}).items() for name, value in values.items()
    }
