"""Chooses the settings of a best recipe from a search on source images: `python -m tools.choose_settings pacs-search`.

In each group of the study, the row with the largest mean gain over the first row replaces the recipe's setting, if that
gain is larger than its standard error. A gain is paired by source and half of the bank, over the runs in which the row
differs from the first one. The group of norms is there for comparison: nothing is chosen in it. `--scale short` reads
runs of that scale, at which digits-search is trained.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from asrnorm.cli.options import find_kept
from asrnorm.core.config import Scale
from asrnorm.studies import Study, get_study
from asrnorm.studies.spec import Row, RunSpec, scored_hash
from asrnorm.studies.store import Store, find_results

NOT_CHOSEN = "Norm"
SCORE = "shifted-val"
VIEWS = "method.views"


@dataclass(frozen=True)
class Gain:
    """What a row gains over the first one, in percentage points, and the fields in which its runs differ."""

    label: str
    group: str
    mean: float
    error: float  # standard error of the mean
    pairs: int
    changes: dict[str, Any]


def read_gains(study: Study, store: Store, scale: Scale = "paper") -> list[Gain]:
    """Return the gain of every row whose runs are all there, at one scale."""
    first, *others = study.rows
    found = []
    for row in others:
        everything = zip(_runs(first), _runs(row), strict=True)
        pairs = [pair for pair in everything if len({scored_hash(run, 0, scale) for run in pair}) == 2]
        scores = [[_read_score(run, store, scale) for run in pair] for pair in pairs]
        points = [100 * (mine - base) for base, mine in scores if base is not None and mine is not None]
        if len(points) == len(pairs) > 1:
            base, mine = pairs[0]
            changes = {key: value for key, value in mine.overrides.items() if base.overrides.get(key) != value}
            error = statistics.stdev(points) / math.sqrt(len(points))
            found.append(Gain(row.label, row.group, statistics.mean(points), error, len(points), changes))
    return found


def choose(gains: Sequence[Gain]) -> list[Gain]:
    """Return the best row of each group, where its gain is larger than its standard error."""
    best: dict[str, Gain] = {}
    for gain in gains:
        if gain.group != NOT_CHOSEN and (gain.group not in best or gain.mean > best[gain.group].mean):
            best[gain.group] = gain
    return [gain for gain in best.values() if gain.mean > gain.error]


def combine(study: Study, chosen: Sequence[Gain]) -> dict[str, Any]:
    """Return the fields that the chosen rows change, all of them.

    Views are a plain one and a changed one, which may come several times: each row replaces parts of its own in the
    changed view, and may say how often it comes.
    """
    changes: dict[str, Any] = {}
    plain, *changed = _runs(study.rows[0])[0].config(0, "paper").method.args["views"]
    view, count = _as_chain(changed[-1]), len(changed)
    for gain in chosen:
        changes |= {name: value for name, value in gain.changes.items() if name != VIEWS}
        if VIEWS in gain.changes:
            others = gain.changes[VIEWS][1:]
            view = _replace_parts(view, _as_chain(changed[-1]), _as_chain(others[-1]))
            count = len(others) if len(others) != len(changed) else count
            changes[VIEWS] = [plain, *[view] * count]
    return changes


def _as_chain(view: Any) -> list[Any]:
    return view if isinstance(view, list) else [view]


def _replace_parts(view: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    gone = [part for part in before if part not in after]
    new = [part for part in after if part not in before]
    place = view.index(gone[0]) if gone else len(view)
    return [*view[:place], *new, *(part for part in view[place:] if part not in gone)]


def _runs(row: Row) -> Sequence[RunSpec]:
    return max((cell.runs for cell in row.cells.values()), key=len)


def _read_score(run: RunSpec, store: Store, scale: Scale) -> float | None:
    found = store.results.get(scored_hash(run, 0, scale))
    return None if found is None else found.result.validation.get(SCORE)


def main(arguments: Sequence[str]) -> int:
    """Print the gains and the choice, and write the changed fields if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--scale", choices=get_args(Scale), default="paper")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, help="write the fields as lines for --set")
    given = parser.parse_args(arguments)
    study = get_study(given.study)
    gains = read_gains(study, find_results(given.runs, find_kept()), given.scale)
    chosen = choose(gains)
    for gain in gains:
        mark = "chosen" if gain in chosen else ""
        name = f"{gain.group:24} {gain.label:22}"
        sys.stdout.write(f"{name} {gain.mean:+6.2f} +- {gain.error:.2f}  {gain.pairs} {mark}\n")
    fields = combine(study, chosen)
    lines = [f"{name}={json.dumps(value)}\n" for name, value in fields.items()]
    sys.stdout.writelines(["\n", *lines])
    if given.out:
        given.out.write_text("".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
