"""The runs behind a study's cells: config, curves and scores, one block for the seeds of each run."""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from asrnorm.core.commit import shorten_commit
from asrnorm.core.config import dump_config
from asrnorm.core.errors import AsrnormError
from asrnorm.reporting.cell_table import scrolling
from asrnorm.reporting.log import curve
from asrnorm.reporting.sparkline import sparkline
from asrnorm.studies import RunSpec
from asrnorm.studies.collect import Collected, RunRecord
from asrnorm.studies.store import read_log

STYLE = """
section.run { border-top: 1px solid var(--line); padding: .4rem 0 .8rem; scroll-margin-top: .5rem; }
section.run:target { box-shadow: -.5rem 0 0 var(--paper), -.75rem 0 0 var(--link); }
section.run h3 { margin: .4rem 0; overflow-wrap: anywhere; } section.run details { margin: .4rem 0; }
section.run td, section.run th { padding: .15rem .7rem; font-size: .88rem; } code, pre { font-size: .84rem; }
section.run pre { overflow-x: auto; background: var(--gap); padding: .6rem .8rem; border-radius: 4px; }
.curves { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; }
svg.spark { font: 10px system-ui, sans-serif; } svg.spark text { fill: var(--faint); }
svg.spark polyline { fill: none; stroke: var(--blue); stroke-width: 1.2; opacity: .75; }
svg.spark path { fill: none; stroke: var(--line); } svg.spark .broken { fill: #D55E00; font-weight: 700; }
summary { cursor: pointer; }
"""


@dataclass(frozen=True)
class RunBlock:
    """One run over its seeds."""

    anchor: str
    spec: RunSpec
    records: tuple[RunRecord, ...]


def identify(spec: RunSpec) -> str:
    """Return a text that two cells share when the same run stands behind them; extra analyses make no other run."""
    parts = [spec.recipe, dict(spec.options), dict(spec.overrides)]
    again = None if spec.evaluation is None else [spec.evaluation.name, dict(spec.evaluation.overrides)]
    return json.dumps([*parts, again], sort_keys=True, default=str)


def gather(collected: Collected) -> dict[str, RunBlock]:
    """Return the runs behind all cells, by identity, in the order of the table."""
    found: dict[str, dict[str, RunRecord]] = {}
    for row in collected.study.rows:
        for column in collected.study.columns:
            measured = collected.cells.get((row.label, column))
            for record in measured.records if measured else ():
                found.setdefault(identify(record.spec), {})[record.config_hash] = record
    blocks = {}
    for key, by_hash in found.items():
        records = tuple(sorted(by_hash.values(), key=lambda record: record.seed))
        blocks[key] = RunBlock(f"runs-{records[0].config_hash}", records[0].spec, records)
    return blocks


def run_section(block: RunBlock) -> str:
    """Return config, curves and scores of a run; the config is that of the first seed."""
    spec, records = block.spec, block.records
    options = " ".join(f"{key}={value}" for key, value in {**spec.options, **spec.overrides}.items())
    again = f" · scored as {spec.evaluation.name}" if spec.evaluation else ""
    title = f"<code>{html.escape(spec.recipe)}</code> {html.escape(options)}{html.escape(again)}"
    return "\n".join(
        [
            f'<section class="run" id="{html.escape(block.anchor)}"><h3>{title}</h3>',
            _curves(records),
            scrolling(_seeds(records), f"seeds of {spec.recipe}"),
            _folded("config", f"<pre>{html.escape(_config(records[0]))}</pre>"),
            _folded("scores by domain", scrolling(_domains(records), f"scores of {spec.recipe} by domain")),
            "</section>",
        ]
    )


def _curves(records: Sequence[RunRecord]) -> str:
    logs = [read_log(record.folder) for record in records]
    drawn = [sparkline([curve(rows, key) for rows in logs if curve(rows, key)], key) for key in ("loss", "accuracy")]
    if not any(drawn):
        return '<p class="note">No log: this is a kept result, whose run folder is elsewhere.</p>'
    return f'<div class="curves">{"".join(drawn)}</div>'


def _seeds(records: Sequence[RunRecord]) -> str:
    heads = ("seed", "unseen, average", "source", "selection", "steps", "minutes", "commit", "config")
    lines = []
    for record in records:
        result = record.result
        commit = ", ".join(map(shorten_commit, result.commits))
        words = [
            str(record.seed),
            f"{100 * result.average_accuracy:.1f}",
            f"{100 * result.source.accuracy:.1f}",
            html.escape(result.selection),
            f"{result.steps:,}",
            f"{result.wall_seconds / 60:.1f}",
            f"<code>{html.escape(commit)}</code>",
            f"<code>{html.escape(record.config_hash)}</code>",
        ]
        lines.append("<tr>" + "".join(f"<td>{word}</td>" for word in words) + "</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _config(record: RunRecord) -> str:
    if record.folder is not None and record.spec.evaluation is None and (record.folder / "config.yaml").is_file():
        return (record.folder / "config.yaml").read_text(encoding="utf-8", errors="replace")
    try:
        return dump_config(record.spec.scored_config(record.seed, record.scale))  # type: ignore[arg-type]
    except AsrnormError as error:  # a result whose recipe this version does not have
        return f"# {error}"


def _domains(records: Sequence[RunRecord]) -> str:
    """Means over the seeds; domains that a seed lacks are averaged over the others."""
    scores: dict[str, list[tuple[float, float, float, float]]] = {}
    for record in records:
        for domain in record.result.domains:
            scores.setdefault(domain.name, []).append((domain.accuracy, domain.brier, domain.ece, domain.nll))
    lines = []
    for name, values in scores.items():
        accuracy, brier, ece, nll = (mean(column) for column in zip(*values, strict=True))
        cells = (f"{100 * accuracy:.1f}", f"{brier:.4f}", f"{ece:.4f}", f"{nll:.3f}")
        lines.append(
            f'<tr><th scope="row">{html.escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("domain", "accuracy %", "Brier / K", "ECE", "NLL"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{inner}</details>"
