"""A job: one run with all that is to be made of it, and which of that is there already."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrnorm.config import RunConfig, content_hash, override
from asrnorm.lock import take_lock
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, Evaluation
from asrnorm.studies.store import holds_result

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
        kept: labels of the pieces that kept results stand for.
        may_diverge: a loss that is not finite is an outcome, kept in `DIVERGENCE_FILE`; nothing more is made of it.
        module: what `python -m` runs; another than `asrnorm` may register things of its own first.
        imports: modules that each command imports first (`--import`).
    """

    config: RunConfig
    folder: Path
    evaluations: tuple[Evaluation, ...] = ()
    analyses: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    may_diverge: bool = False
    module: str = "asrnorm"
    imports: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.folder)  # configs hold dicts

    @property
    def name(self) -> str:
        """The name of its folder, which is unique."""
        return self.folder.name

    def pieces(self) -> tuple[Piece, ...]:
        """Return the commands of the job in their order; all but the first need the first."""
        device = () if self.config.device == "auto" else ("--set", f"device={self.config.device}")
        own = tuple(word for name in self.imports for word in ("--import", name))
        place = str(self.folder)
        words = ("train", "--config", str(self.folder / "launch.yaml"), "--out", place, *own)
        pieces = [Piece("train", words, self.folder / "result.json")]
        for evaluation in self.evaluations:
            changes = tuple(word for item in evaluation.overrides.items() for word in ("--set", _assignment(*item)))
            product = self.folder / "evaluations" / f"{evaluation.name}.json"
            words = ("evaluate", place, "--as", evaluation.name, "--renew", *device, *changes, *own)
            pieces.append(Piece(evaluation.name, words, product))
        for analysis in self.analyses:
            words = ("evaluate", place, _ANALYSIS_WORDS[analysis], *device, *own)
            pieces.append(Piece(analysis, words, self.folder / ANALYSIS_FILES[analysis]))
        return tuple(pieces)

    def missing(self) -> tuple[Piece, ...]:
        """Return the pieces whose products are not there; none where the run is one that diverged, and may."""
        if self.has_diverged():
            return ()
        hashes = {evaluation.name: self._hash_of(evaluation.overrides) for evaluation in self.evaluations}
        hashes["train"] = content_hash(self.config)
        pieces = [piece for piece in self.pieces() if piece.label not in self.kept]
        return tuple(piece for piece in pieces if not _is_there(piece, hashes.get(piece.label)))

    @property
    def is_kept(self) -> bool:
        """Whether the kept results stand for the run, whose folder is gone."""
        return "train" in self.kept

    def has_diverged(self) -> bool:
        """Tell whether the run has ended with a loss that is not finite, where that is an outcome."""
        if (self.folder / "result.json").is_file():  # tried again, it has come to an end
            return False
        return self.may_diverge and (self.folder / DIVERGENCE_FILE).is_file()

    def is_busy(self) -> bool:
        """Tell whether another process, here or on a machine that shares the folder, is at work on the run."""
        try:
            with (self.folder / ".lock").open("rb") as lock:
                take_lock(lock, shared=True)
        except BlockingIOError:
            return True
        except OSError:  # no such folder yet
            return False
        return False

    def _hash_of(self, overrides: Mapping[str, Any]) -> str:
        return content_hash(override(self.config, overrides))


def gather_jobs(*plans: "Plan", imports: tuple[str, ...] = ()) -> tuple[Job, ...]:
    """Return a job for every run folder of the plans, with the evaluations and analyses that their tasks ask for.

    Args:
        plans: what studies need; a run that several of them need is one job.
        imports: see `Job`.
    """
    jobs: dict[Path, Job] = {}
    for plan in plans:
        for folder, job in _jobs_of(plan, imports).items():
            jobs[folder] = _join(jobs[folder], job) if folder in jobs else job
    return tuple(jobs.values())


def _jobs_of(plan: "Plan", imports: tuple[str, ...]) -> dict[Path, Job]:
    jobs: dict[Path, Job] = {}
    for task in plan.tasks:  # a run comes before what is made of it
        if task.kind == "run":
            may_diverge = task.spec.may_diverge
            new = Job(config=task.config, folder=task.folder, may_diverge=may_diverge, imports=imports)
            jobs.setdefault(task.folder, replace(new, kept=frozenset({"train"})) if task.state == "kept" else new)
            continue
        job, evaluation = jobs[task.folder], task.spec.evaluation
        label = task.analysis or ""
        if task.kind == "evaluation" and evaluation is not None:
            job, label = replace(job, evaluations=(*job.evaluations, evaluation)), evaluation.name
        elif task.analysis is not None:
            job = replace(job, analyses=(*job.analyses, task.analysis))
        jobs[task.folder] = replace(job, kept=job.kept | {label}) if task.state == "kept" else job
    return jobs


def _join(one: Job, other: Job) -> Job:
    """Return the job of a run that two studies need, each in its way."""
    return replace(
        one,
        evaluations=(*one.evaluations, *(extra for extra in other.evaluations if extra not in one.evaluations)),
        analyses=tuple(dict.fromkeys((*one.analyses, *other.analyses))),
        # Where one has to train it, since what it needs of it is not kept, everything is made of that training.
        kept=one.kept | other.kept if one.is_kept == other.is_kept else frozenset(),
        may_diverge=one.may_diverge or other.may_diverge,
    )


def _assignment(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _is_there(piece: Piece, config_hash: str | None) -> bool:
    # An evaluation of that name may be of an earlier study, under another config.
    return piece.product.is_file() if config_hash is None else holds_result(piece.product, config_hash)
