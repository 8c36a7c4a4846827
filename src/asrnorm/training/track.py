"""Tracking: who is told the numbers of a run besides `log.jsonl`, and how a run goes on without a tracker that fails.

Tracking changes no number of a run and is no part of its config.
"""

import abc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from asrnorm.core.config import RunConfig
from asrnorm.core.errors import first_line
from asrnorm.core.files import describe_failure, write_whole
from asrnorm.core.registry import Registry
from asrnorm.core.results import RunResult

logger = logging.getLogger("asrnorm")

TRACKERS: Registry[Callable[[], "Tracker"]] = Registry("tracker")

Numbers = Mapping[str, float]
"""Numbers by path, such as `loss` or `lambdas/norm/mu`."""

_ARTIFACTS = ("config.yaml", "env.json", "log.jsonl", "*.png", "*.svg")
_METRICS = ("accuracy", "brier", "brier_sum", "nll", "ece")


@dataclass(frozen=True)
class Track:
    """A run as a tracker sees it: its folder, its config, and the step from which on it is trained now."""

    folder: Path
    config: RunConfig
    step: int

    @property
    def name(self) -> str:
        """The name of the run folder; the first pass of a selection is in a folder of its own inside."""
        folder = self.folder.absolute()
        return f"{folder.parent.name} (choosing)" if folder.name == "choice" else folder.name

    def file(self, name: str) -> Path:
        """Return the path of a tracker's own file, which `--fresh` removes with the run."""
        (self.folder / "tracks").mkdir(parents=True, exist_ok=True)
        return self.folder / "tracks" / name

    def identifier(self, tracker: str, create: Callable[[], str]) -> tuple[str, bool]:
        """Return the id under which a tracker knows the run, and whether it is new; a resumed run keeps its own."""
        path = self.file(f"{tracker}.id")
        if path.exists():
            return path.read_text(encoding="utf-8").strip(), False
        created = create()
        write_whole(path, created)
        return created, True


class Tracker(abc.ABC):
    """What a tracker is told, in this order. Whatever a method raises ends the tracker, not the run.

    A resumed run repeats the steps since its last checkpoint: a tracker that `rewinds` is told these rows again and
    replaces them, any other is told every step once.
    """

    rewinds: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, track: Track) -> None:
        """Begin the track of a run, or continue that of a resumed one."""

    @abc.abstractmethod
    def write(self, numbers: Numbers, step: int) -> None:
        """Record the numbers of a step."""

    def flush(self) -> None:  # noqa: B027
        """Write what is buffered: training is over, the evaluation begins."""

    def finish(self, result: RunResult, scores: Numbers, files: Sequence[Path]) -> None:  # noqa: B027
        """Record the result, the same as numbers by path, and files: config, environment, log, pictures."""

    def close(self) -> None:  # noqa: B027
        """End, also after an interruption or an error of the run."""


class Trackers:
    """The trackers of a run by name; a context manager that closes them. One that fails is dropped with a warning."""

    def __init__(self, trackers: Iterable[tuple[str, Tracker]], folder: Path, config: RunConfig) -> None:
        self._active, self._folder, self._config = list(trackers), folder, config
        self._told, self._is_started = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_started:
            self._tell(lambda tracker: tracker.close())

    def at(self, folder: Path) -> "Trackers":
        """Return the same trackers for the files of another pass of the run; they are closed before the next one."""
        return Trackers(self._active, folder, self._config)

    def start(self, step: int, told: int) -> None:
        """Begin at a step; a process that was killed has told the rows up to step `told`."""
        self._told, self._is_started = told, True
        self._tell(lambda tracker: tracker.start(Track(self._folder, self._config, step)))

    def write(self, row: Mapping[str, Any]) -> None:
        """Record the row of a step."""
        step: int = row["step"]
        numbers = {name: value for name, value in flatten(row) if name != "step"}
        is_new, self._told = step > self._told, max(step, self._told)
        self._tell(lambda tracker: tracker.write(numbers, step) if is_new or tracker.rewinds else None)

    def flush(self) -> None:
        """Write what is buffered."""
        self._tell(lambda tracker: tracker.flush())

    def finish(self, result: RunResult) -> None:
        """Record the result of the run."""
        domains = {"source": result.source, **{domain.name: domain for domain in result.domains}}
        named = {name: {metric: getattr(domain, metric) for metric in _METRICS} for name, domain in domains.items()}
        average = {"average_accuracy": result.average_accuracy} if result.domains else {}
        scores = dict(flatten({**named, **average, "attacks": result.adversarial}, "scores/"))
        files = [path for pattern in _ARTIFACTS for path in sorted(self._folder.glob(pattern))]
        self._tell(lambda tracker: tracker.finish(result, scores, files))

    def _tell(self, tell: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._active):
            try:
                tell(tracker)
            except Exception as error:  # of a library, a server or a disk; the log has the same numbers
                self._active.remove((name, tracker))
                said = describe_failure(error, self._folder) if isinstance(error, OSError) else first_line(error)
                logger.warning("the run goes on without the tracker %s: %s", name, said)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dicts and lists, each with its path."""
    leaves = iterate_leaves(values, "/", prefix)
    return ((name, float(value)) for name, value in leaves if isinstance(value, int | float))


def iterate_leaves(values: Any, separator: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dicts and lists, each with its path."""
    for name, value in values.items() if isinstance(values, Mapping) else enumerate(values):
        if isinstance(value, Mapping | list | tuple):
            yield from iterate_leaves(value, separator, f"{prefix}{name}{separator}")
        else:
            yield f"{prefix}{name}", value
