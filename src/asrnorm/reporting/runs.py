"""The runs behind the cells of a study, as its page shows them: config, curves and scores of all seeds of a run."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from asrnorm.core.config import dump_config
from asrnorm.core.errors import AsrnormError
from asrnorm.core.settings import shorten_commit
from asrnorm.studies import RunSpec
from asrnorm.studies.collect import Collected, RunRecord
from asrnorm.studies.store import read_log, subsample

Points = list[tuple[float, float]]  # step and value
_MOST_POINTS = 160  # of a curve
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 292, 8, 88  # of the axes of a sparkline, as in templates/study.html


@dataclass(frozen=True)
class RunBlock:
    """One run over its seeds."""

    anchor: str
    spec: RunSpec
    records: tuple[RunRecord, ...]

    @property
    def title(self) -> str:
        """Options and overrides of the run, and how it was scored again."""
        options = " ".join(f"{key}={value}" for key, value in {**self.spec.options, **self.spec.overrides}.items())
        return f"{options} · scored as {self.spec.evaluation.name}" if self.spec.evaluation else options

    @cached_property
    def sparklines(self) -> list["Sparkline"]:
        """Loss and accuracy over training, one curve per seed; none where there is no log."""
        logs = [read_log(record.folder) for record in self.records]
        drawn = (make_sparkline([curve(rows, key) for rows in logs], key) for key in ("loss", "accuracy"))
        return [one for one in drawn if one is not None]

    @property
    def seeds(self) -> Iterator[tuple[str, ...]]:
        """Seed, accuracy on the targets and on the source, selection, steps, minutes, commits and config hash."""
        for record in self.records:
            result = record.result
            yield (
                str(record.seed),
                f"{100 * result.average_accuracy:.1f}",
                f"{100 * result.source.accuracy:.1f}",
                result.selection,
                f"{result.steps:,}",
                f"{result.wall_seconds / 60:.1f}",
                ", ".join(map(shorten_commit, result.commits)),
                result.config_hash,
            )

    @property
    def domains(self) -> Iterator[tuple[str, ...]]:
        """Name, accuracy, Brier score, ECE and NLL of every domain: means over the seeds that were scored on it."""
        scores: dict[str, list[tuple[float, float, float, float]]] = {}
        for record in self.records:
            for domain in record.result.domains:
                scores.setdefault(domain.name, []).append((domain.accuracy, domain.brier, domain.ece, domain.nll))
        for name, values in scores.items():
            accuracy, brier, ece, nll = (mean(column) for column in zip(*values, strict=True))
            yield name, f"{100 * accuracy:.1f}", f"{brier:.4f}", f"{ece:.4f}", f"{nll:.3f}"

    @property
    def config(self) -> str:
        """The config of the first seed, as YAML."""
        record = self.records[0]
        if record.folder is not None and record.spec.evaluation is None and (record.folder / "config.yaml").is_file():
            return (record.folder / "config.yaml").read_text(encoding="utf-8", errors="replace")
        try:
            return dump_config(record.spec.scored_config(record.seed, record.result.scale))  # type: ignore[arg-type]
        except AsrnormError as error:  # a result whose recipe this version does not have
            return f"# {error}"


def gather_runs(collected: Collected) -> dict[str, RunBlock]:
    """Return the runs behind all cells by their identity, in the order of the table."""
    found: dict[str, dict[str, RunRecord]] = {}
    for row in collected.study.rows:
        for column in collected.study.columns:
            measured = collected.cells.get((row.label, column))
            for record in measured.records if measured else ():
                found.setdefault(identify(record.spec), {})[record.result.config_hash] = record
    blocks = {}
    for key, by_hash in found.items():
        records = tuple(sorted(by_hash.values(), key=lambda record: record.seed))
        blocks[key] = RunBlock(f"runs-{records[0].result.config_hash}", records[0].spec, records)
    return blocks


def identify(spec: RunSpec) -> str:
    """Return a text that is equal for specs of the same run; extra analyses do not make another run."""
    parts = [spec.recipe, dict(spec.options), dict(spec.overrides)]
    again = None if spec.evaluation is None else [spec.evaluation.name, dict(spec.evaluation.overrides)]
    return json.dumps([*parts, again], sort_keys=True, default=str)


def curve(rows: list[dict[str, Any]], key: str) -> Points:
    """Return step and value of every row of a log that has the number."""
    return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]


def lambda_curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, Points]]:
    """Return the lambdas by name and layer, layers in the order of the network."""
    found: dict[str, dict[str, Points]] = {}
    for row in rows:
        for layer, values in row.get("lambdas", {}).items():
            for name, value in values.items():
                found.setdefault(name, {}).setdefault(layer, []).append((row["step"], value))
    return found


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """A small chart, whose axes the template draws."""

    label: str
    lines: tuple[str, ...]  # `points` of an SVG polyline, one per curve
    broken: tuple[str, ...]  # where along the top edge a value is not finite
    low: str  # least and greatest value
    high: str
    first: float  # steps at which the axis begins and ends
    last: float


def make_sparkline(curves: Sequence[Points], label: str) -> Sparkline | None:
    """Return curves over a shared axis; `None` without any finite value."""
    finite = [point for points in curves for point in points if math.isfinite(point[1])]
    if not finite:
        return None
    first, last = min(step for step, _ in finite), max(step for points in curves for step, _ in points)
    low, high = min(value for _, value in finite), max(value for _, value in finite)

    def across(step: float) -> str:
        return f"{_LEFT + (step - first) / max(last - first, 1) * (_RIGHT - _LEFT):.1f}"

    def down(value: float) -> str:
        return f"{_TOP + (high - value) / ((high - low) or 1) * (_BOTTOM - _TOP):.1f}"

    drawn = [[point for point in subsample(points, _MOST_POINTS) if math.isfinite(point[1])] for points in curves]
    broken = [next((step for step, value in points if not math.isfinite(value)), None) for points in curves]
    return Sparkline(
        label=label,
        lines=tuple(" ".join(f"{across(step)},{down(value)}" for step, value in points) for points in drawn if points),
        broken=tuple(across(step) for step in broken if step is not None),
        low=f"{low:.3g}",
        high=f"{high:.3g}",
        first=first,
        last=last,
    )
