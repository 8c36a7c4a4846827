"""Lists the runs that tables still lack, in the order in which to train them, with an estimate of the time they take.

`tools.result_tables` writes the list between `<!-- remaining -->` and `<!-- end remaining -->`. `ORDER` is kept by
hand, the most valuable first. An entry whose runs are all kept is left out, and a run of several entries counts in the
first.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

from asrnorm.cli.study_choice import choose_rows
from asrnorm.core.config import RunConfig, Scale, content_hash
from asrnorm.studies import get_study, list_studies, plan
from asrnorm.studies.plan import Task
from asrnorm.studies.store import find_results

# Images of a step for each image of the batch, where it is not one.
COPIES = {"st": 5, "ttt": 5}


@dataclass(frozen=True)
class Entry:
    """Rows of a study to be trained at one scale with so many seeds; without rows all of them."""

    study: str
    scale: Scale
    seeds: int
    rows: tuple[str, ...] = ()  # patterns, as `--row` takes them

    @property
    def command(self) -> str:
        """The command that trains them."""
        rows = "".join(f" --row '{row}'" for row in self.rows)
        scale = "" if self.scale == "paper" else f" --scale {self.scale}"
        return f"asrnorm reproduce {self.study}{scale} --seeds {self.seeds}{rows}"


ORDER = (
    Entry("table4", "paper", 1),
    Entry("digits-rivals", "paper", 3),
    Entry("cifar-best", "short", 1, ("ASR-Norm", "BN", "IN")),
    Entry("pacs-best", "paper", 3),
    Entry("digits-best", "paper", 3),
    Entry("table4", "paper", 5),
    Entry("pacs-rivals", "paper", 1),
    Entry("table8", "paper", 5),
    Entry("cifar-search", "paper", 1),
    Entry("cifar-best", "short", 1),
    Entry("pacs-best", "paper", 5, ("ASR-Norm", "BN", "IN", "BIN")),
    Entry("table5", "paper", 3),
    Entry("table2", "paper", 1, ("ST", "ERM, as ST", "TTT*")),
    Entry("table9", "paper", 3),
    Entry("cifar-network", "paper", 1),
    Entry("pacs-best", "paper", 5),
    Entry("fig-lambda-cifar", "paper", 1),
    Entry("ablation-residual", "paper", 3),
    Entry("cifar-steps", "short", 3),
    Entry("table2", "short", 3),
    Entry("pacs-size", "paper", 1),
    Entry("table1", "paper", 3, ("RSDA*",)),
    Entry("digits-reading", "short", 2),
    Entry("table4-chosen", "paper", 5),
    Entry("table5", "paper", 5),
    Entry("table9", "paper", 5),
)


@dataclass(frozen=True)
class Kept:
    """A kept run: its config and its seconds."""

    config: RunConfig
    seconds: float


def render_remaining(folder: Path, order: Sequence[Entry] = ORDER, names: Sequence[str] | None = None) -> str:
    """Return the list as a table, a row for each entry that still has runs, then the runs that no entry has.

    Args:
        folder: of the kept results.
        order: the entries.
        names: of the studies whose kept runs give estimates and whose other runs are counted; all by default.

    Example:
        >>> order = [Entry("table8", "short", 1, ("BN",))]
        >>> print(render_remaining(Path("nowhere"), order, ["table8"]).splitlines()[2])
        | 1 | `asrnorm reproduce table8 --scale short --seeds 1 --row 'BN'` | 4 |  |  |  |
    """
    plans, names = Plans(folder), list_studies() if names is None else names
    kept = list(plans.kept(names))
    lines = [
        "| order | command | runs | evaluations | seconds a run | worker hours |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    counted: set[str] = set()
    for entry in order:
        todo = [task for task in plans.todo(entry) if task.key not in counted]
        counted |= {task.key for task in todo}
        runs = [task.config for task in todo if task.kind == "run"]
        seconds = [guess for config in runs if (guess := estimate(config, kept)) is not None]
        known = len(seconds) == len(runs) > 0
        cells = [
            str(len(lines) - 1),
            f"`{entry.command}`",
            str(len(runs)),
            str(len(todo) - len(runs) or ""),
            f"{statistics.median(seconds):,.0f}" if known else "",
            f"{sum(seconds) / 3600:.1f}" if known else "",
        ]
        lines += [f"| {' | '.join(cells)} |"] if todo else []
    others = {}
    for name in names:
        todo = plans.todo(Entry(name, "paper", get_study(name).seeds))
        others[name] = len({task.key for task in todo if task.kind == "run"} - counted)
    words = ", ".join(f"`{name}` ({count})" for name, count in others.items() if count)
    return "\n".join([*lines, "", f"Other runs at the paper's scale, by study: {words or 'none'}."])


class Plans:
    """What is kept and what is to be done of studies, each planned once."""

    def __init__(self, folder: Path) -> None:
        self.store = find_results(folder / "no-runs", folder)
        self._plans: dict[Entry, tuple[Task, ...]] = {}

    def kept(self, names: Sequence[str]) -> Iterator[Kept]:
        """Yield the kept runs of studies, each once."""
        seen = set()
        for name, scale in product(names, get_args(Scale)[:2]):
            for task in self._plan(Entry(name, scale, get_study(name).seeds)):
                if task.kind == "run" and task.state == "kept" and task.key not in seen:
                    seen.add(task.key)
                    yield Kept(task.config, self.store.results[content_hash(task.config)].result.wall_seconds)

    def todo(self, entry: Entry) -> list[Task]:
        """Return the tasks of an entry that are not kept."""
        return [task for task in self._plan(entry) if task.state != "kept"]

    def _plan(self, entry: Entry) -> tuple[Task, ...]:
        if entry not in self._plans:
            (study,) = choose_rows([get_study(entry.study)], entry.rows)
            chosen = plan(study, seeds=range(entry.seeds), scale=entry.scale, runs=Path("no-runs"), store=self.store)
            self._plans[entry] = chosen.tasks
        return self._plans[entry]


def estimate(config: RunConfig, kept: Iterable[Kept]) -> float | None:
    """Return the seconds of a run by those of the most similar kept ones, in proportion to the images it trains on.

    Similar is what has the same suite, then network, then method, norm, scale and length, in this order of importance.
    Without a kept run of the suite it is `None`.
    """

    def likeness(one: RunConfig) -> tuple[bool, ...]:
        same = (one.model.name == config.model.name, one.method.name == config.method.name)
        return (*same, one.norm.name == config.norm.name, one.scale == config.scale, one.steps == config.steps)

    near = [one for one in kept if one.config.suite.name == config.suite.name]
    best = max((likeness(one.config) for one in near), default=None)
    alike = [one.seconds / _count_images(one.config) for one in near if likeness(one.config) == best]
    return statistics.median(alike) * _count_images(config) if alike else None


def _count_images(config: RunConfig) -> int:
    return config.steps * config.batch_size * COPIES.get(config.method.name, len(config.method.args.get("views", "1")))
