"""A job: one run with all that is to be made of it, and which of that is there already."""

import fcntl
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrnorm.config import RunConfig, content_hash, override
from asrnorm.errors import AsrnormError, InputError
from asrnorm.results import read_result
from asrnorm.studies.spec import ANALYSIS_FILES, Evaluation

if TYPE_CHECKING:
    from asrnorm.studies.plan import Plan

# How `asrnorm evaluate` is asked for each analysis.
_ANALYSIS_WORDS = {"statistics": "--statistics"}


@dataclass(frozen=True)
class Piece:
    """A command that leaves one file.

    Attributes:
        label: what it is called on the screen.
        words: after `asrnorm`.
        product: what is there when it is done.
    """

    label: str
    words: tuple[str, ...]
    product: Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run, how it is scored again afterwards, and what else is made of it.

    Attributes:
        folder: of the run.
        evaluations: each leaves `evaluations/<name>.json`.
        analyses: keys of `ANALYSIS_FILES`.
        module: what `python -m` runs; another than `asrnorm` may register things of its own first.
    """

    config: RunConfig
    folder: Path
    evaluations: tuple[Evaluation, ...] = ()
    analyses: tuple[str, ...] = ()
    module: str = "asrnorm"

    @property
    def name(self) -> str:
        """The name of its folder, which is unique."""
        return self.folder.name

    def pieces(self) -> tuple[Piece, ...]:
        """Return the commands of the job in their order; all but the first need the first."""
        device = () if self.config.device == "auto" else ("--set", f"device={self.config.device}")
        place = str(self.folder)
        words = ("train", "--config", str(self.folder / "launch.yaml"), "--out", place)
        pieces = [Piece("train", words, self.folder / "result.json")]
        for evaluation in self.evaluations:
            changes = tuple(word for item in evaluation.overrides.items() for word in ("--set", _assignment(*item)))
            product = self.folder / "evaluations" / f"{evaluation.name}.json"
            words = ("evaluate", place, "--as", evaluation.name, *device, *changes)
            pieces.append(Piece(evaluation.name, words, product))
        for analysis in self.analyses:
            words = ("evaluate", place, _ANALYSIS_WORDS[analysis], *device)
            pieces.append(Piece(analysis, words, self.folder / ANALYSIS_FILES[analysis]))
        return tuple(pieces)

    def missing(self) -> tuple[Piece, ...]:
        """Return the pieces whose products are not there."""
        hashes = {evaluation.name: self._hash_of(evaluation.overrides) for evaluation in self.evaluations}
        return tuple(piece for piece in self.pieces() if not _is_there(piece, hashes.get(piece.label)))

    def is_busy(self) -> bool:
        """Tell whether another process, here or on a machine that shares the folder, is at work on the run."""
        try:
            with (self.folder / ".lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no such folder yet, or a file system without locks
            return False
        return False

    def _hash_of(self, overrides: Mapping[str, Any]) -> str:
        return content_hash(override(self.config, overrides))


def gather_jobs(plan: "Plan", module: str = "asrnorm") -> tuple[Job, ...]:
    """Return a job for every run folder of a plan, with the evaluations and analyses that its tasks ask for.

    Args:
        plan: what a study needs.
        module: see `Job`.
    """
    parts: dict[Path, tuple[RunConfig, dict[str, Evaluation], dict[str, None]]] = {}
    for task in plan.tasks:
        _, evaluations, analyses = parts.setdefault(task.folder, (task.config, {}, {}))
        if task.spec.evaluation is not None:
            known = evaluations.setdefault(task.spec.evaluation.name, task.spec.evaluation)
            if known != task.spec.evaluation:
                raise InputError(f"two evaluations of {task.folder.name} are called {known.name!r}; rename one")
        analyses.update(dict.fromkeys(task.spec.analyses))
    return tuple(
        Job(config=config, folder=folder, evaluations=tuple(scored.values()), analyses=tuple(extra), module=module)
        for folder, (config, scored, extra) in parts.items()
    )


def _assignment(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _is_there(piece: Piece, config_hash: str | None) -> bool:
    if not piece.product.is_file():
        return False
    if config_hash is None:
        return True
    try:  # an evaluation of that name may be of an earlier study, under another config
        return read_result(piece.product).config_hash == config_hash
    except AsrnormError:
        return False
