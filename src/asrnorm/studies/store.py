"""Results where they lie: run folders, and the kept `results/*.jsonl`; each known by the hash of its config."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from asrnorm.errors import AsrnormError
from asrnorm.results import RunResult, parse_result, read_result


@dataclass(frozen=True, kw_only=True)
class Found:
    """A result and where it was.

    Attributes:
        folder: of the run; `None` for a kept result, which has no log and no config beside it.
        scored_again: it is an evaluation of the run under another config.
    """

    result: RunResult
    folder: Path | None = None
    scored_again: bool = False


@dataclass(frozen=True, kw_only=True)
class Store:
    """Results by the hash of their config, and one line for each file that could not be read."""

    results: Mapping[str, Found]
    problems: tuple[str, ...] = ()


def find_results(runs: Path, kept: Path | None = None) -> Store:
    """Return every result there is; one that lies in a run folder goes before the same one kept.

    Args:
        runs: the folder of run folders; it need not exist.
        kept: the folder of `*.jsonl` files, one result a line.

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
            again = path.parent != folder
            found.setdefault(result.config_hash, Found(result=result, folder=folder, scored_again=again))
    for result in _read_kept(kept, problems) if kept is not None else ():
        found.setdefault(result.config_hash, Found(result=result))
    return Store(results=found, problems=tuple(problems))


def _read_kept(folder: Path, problems: list[str]) -> Iterator[RunResult]:
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                yield parse_result(json.loads(line), f"{path}, line {number}")
            except (AsrnormError, ValueError) as error:
                problems.append(f"{error}" if isinstance(error, AsrnormError) else f"{path}, line {number}: {error}")
