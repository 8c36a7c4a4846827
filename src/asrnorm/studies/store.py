"""Where results are found: run folders, and the kept `results/*.jsonl`; each is identified by the hash of its config.

Beside the kept lines, `results/details/<run>/` holds what figures need of single runs, under the names of a run folder.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.results import RunResult, parse_result, read_result, to_plain

DETAILS = "details"
_ORIGIN = ("device", "torch", "day", "edition", "resumed", "listing")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A result and where it was.

    Attributes:
        folder: of the run; of a kept result, what is kept of the run besides, or `None`.
        scored_again: it is an evaluation of the run under another config.
        kept: it is a line of a kept file, and its run folder is elsewhere or gone.
    """

    result: RunResult
    folder: Path | None = None
    scored_again: bool = False
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class Store:
    """Results by the hash of their config, and one line for each file that could not be read.

    Attributes:
        details: folders of what else is kept of runs, by the hash of their config.
        lines: the kept results, also of runs whose folders are there.
    """

    results: Mapping[str, Found]
    problems: tuple[str, ...] = ()
    details: Mapping[str, Path] = field(default_factory=dict)
    lines: Mapping[str, RunResult] = field(default_factory=dict)


def find_results(runs: Path, kept: Path | None = None) -> Store:
    """Return every result there is; one in a run folder takes precedence over the same one kept.

    Args:
        runs: the folder of run folders; it need not exist.
        kept: the folder of `*.jsonl` files, one result per line.

    Example:
        >>> find_results(Path("nowhere")).results
        {}
    """
    found: dict[str, Found] = {}
    problems: list[str] = []
    for folder in sorted(path for path in runs.glob("*") if path.is_dir()):
        for path in (folder / "result.json", *sorted(folder.glob("evaluations/*.json"))):
            if not path.exists():
                continue
            try:
                result = read_result(path)
            except AsrnormError as error:
                problems.append(str(error))
                continue
            # An evaluation has the edition of its own test images, which may be others.
            result = replace(result, origin={**read_origin(folder / "env.json"), **result.origin})
            again = path.parent != folder
            found.setdefault(result.config_hash, Found(result=result, folder=folder, scored_again=again))
    details = {} if kept is None else find_details(kept)
    seen: dict[str, tuple[str, RunResult]] = {}
    for where, line in _iterate_kept(kept, problems) if kept is not None else ():
        try:
            result = parse_line(line, where)
        except AsrnormError as error:
            problems.append(str(error))
            continue
        identity = result.config_hash
        first, before = seen.setdefault(identity, (where, result))
        if not is_same(before, result):
            problems.append(f"{where}: run {identity} has other numbers in {first}, which count; remove one")
            continue
        found.setdefault(identity, Found(result=result, folder=details.get(identity), kept=True))
    lines = {identity: result for identity, (_, result) in seen.items()}
    return Store(results=found, problems=tuple(problems), details=details, lines=lines)


def holds_result(path: Path, config_hash: str) -> bool:
    """Tell whether a whole result of this config lies there; an evaluation's name says less than its hash.

    Example:
        >>> holds_result(Path("nowhere"), "0123456789")
        False
    """
    try:
        return read_result(path).config_hash == config_hash
    except AsrnormError:
        return False


def find_details(kept: Path) -> dict[str, Path]:
    """Return the folders of what is kept of runs besides their results, by the hash at the end of their names."""
    return {path.name.rpartition("--")[2]: path for path in sorted(kept.glob(f"{DETAILS}/*--*")) if path.is_dir()}


def read_lines(path: Path) -> list[RunResult]:
    """Return all results of a kept file; none if there is no such file.

    Raises:
        InputError: a line that is not a whole result, or a second one of a run with other numbers.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    found: dict[str, RunResult] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}, line {number}"
            result = parse_line(line, where)
            if not is_same(found.setdefault(result.config_hash, result), result):
                raise InputError(f"{where}: run {result.config_hash} has other numbers further up; remove one")
    return list(found.values())


def parse_line(line: bytes, where: str) -> RunResult:
    """Return the result on a line of a kept file.

    Raises:
        InputError: torn, of another schema, or with numbers that no run gives.
    """
    try:
        return parse_result(json.loads(line.decode("utf-8")), where)
    except InputError as error:
        raise InputError(f"{error}; mend or remove the line") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a line of JSON ({error}); mend or remove it") from None


def is_same(one: RunResult, other: RunResult) -> bool:
    """Tell whether two results say the same, whatever their origin; compared as text, where NaN is NaN."""
    if one is other:
        return True
    return json.dumps(to_plain(replace(one, origin={}))) == json.dumps(to_plain(replace(other, origin={})))


def has_same_numbers(one: RunResult, other: RunResult) -> bool:
    """Tell whether two results differ in nothing but the commit, the time they took and their origin."""
    return is_same(one, replace(other, commit=one.commit, wall_seconds=one.wall_seconds))


def read_origin(path: Path) -> dict[str, str]:
    """Return what an `env.json` last says about where and with what a result was made; nothing where unknown."""
    try:
        first = json.loads(path.read_text("utf-8"))
        latest = {key: value for part in (first, *first.get("resumed", ())) for key, value in part.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
    latest["device"] = latest.get("gpu") or latest.get("device")
    later = dict.fromkeys(str(part["commit"]) for part in first.get("resumed", ()) if part.get("commit"))
    latest["resumed"] = " ".join(commit for commit in later if commit != first.get("commit"))
    return {name: str(latest[name]) for name in _ORIGIN if latest.get(name)}


def _iterate_kept(folder: Path, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.glob("*.jsonl")):
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"{path}, line {number}", line
