"""Writes `docs/studies/*.md`, one page per study; a test checks that the pages are up to date.

The blocks of results on the pages stay as they are: `python -m tools.result_figures` draws the figures of the
kept results, then `python -m tools.result_tables` writes the blocks.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from asrnorm.studies import get_study, list_studies
from asrnorm.studies.plan import plan
from asrnorm.studies.spec import Printed, Row, RunSpec, Study
from tools.result_tables import fold, number_of, title_of

_BLOCK = re.compile(r"(<!-- (study: [^\n]*|glance) -->\n).*?(<!-- end (?:study|glance) -->)", re.DOTALL)
_SCALES = ("", " short")  # "": the paper's
INDEX = """\
# Results at a glance

This page has one line for every table and figure of the paper, and for every further study of ours. Numbers are
averages over unseen domains in %, with the paper's in brackets; each study's page has the whole table. For what they
say together, read [how the paper was reproduced](../reproduction.md); for what to do with your own images,
[the recommendation](../how-to/which-training.md).

<!-- glance -->
<!-- end glance -->

`main row` and `compared with` are the study's first comparison for which both are measured, or its first one. `our
best` is the best row of the column that sums the study up, without rows that look at test images; it is empty where a
study only explores settings. The Brier score (table 6) and the calibration error are better if lower. `n` is the
number of seeds per cell. *Short scale* means about a fifth of the training, shown where no run of the paper's length
is kept.

## Reading a study

A study names the run behind each cell and the number that the paper prints there. `asrnorm list studies` lists them.

```
asrnorm reproduce table3 --scale short --seeds 3  # run what is missing, then write the report
asrnorm report table3 --scale short               # only write the report
```

A run is identified by a hash of everything that changes its numbers. Studies therefore share their runs, and a cell can
only be filled by its own run at its own seed and scale. Rows that are not implemented here keep the paper's numbers and
say why. Rows that the paper copied from other works are marked; its slips are shown as printed, with a note. What is
taken from the paper and what is chosen, and how, follows [one rule](../evaluation/rule.md).

## Statistics

Means are over seeds; deviations are over n - 1 (the paper's seem to be over n: see table 10). Rows are compared by the
paper's test, a one-sided two-sample t-test with pooled variance. Reports also show Welch's test, the test paired by
seed, a bootstrap interval of the difference (10,000 resamples, 95 %) and Holm's correction over all tests of the study.
There is no p-value with fewer than three seeds.

## Missing domains

If a domain is not available (SYN, for example), its cells say *no data*. Averages and their differences, ours and the
paper's, are then over the other domains, with a footnote.

## Lambdas and weight decay

Weight decay pulls the logit of a lambda from -3 towards 0, and so the lambda towards .5, whatever the loss says: to
.395 after 10 epochs of the CIFAR-10 recipe and to .5 after 50. `asrnorm.studies.decay.decay_curve` computes that curve
for any run; figures of lambdas show it.

## Your own study

Write its rows in a YAML file, or a function that returns a `Study`; see [how to add a study](../how-to/study.md).
`make pages` writes these pages from the studies and the kept results.
"""


def render_page(study: Study) -> str:
    """Return the page of a study: what it shows, its results, then, folded, its runs and notes, and its command.

    Example:
        >>> print(render_page(get_study("table3")).splitlines()[0])
        # Table 3: PACS, single source
    """
    number = number_of(study.name)
    whose = "a study of ours; the paper has no such table"
    if number:
        whose = "a figure of the paper" if number == "Figure" else f"{number.lower()} of the paper"
    parts = [f"# {title_of(study)}", f"This page shows {whose}. {study.caption}"]
    if study.rows:
        parts += [f"<!-- study: {study.name}{scale} -->\n<!-- end study -->" for scale in _SCALES]
    notes = _list(_notes(study))
    parts += [fold("Notes: what the paper leaves open, and what we found", notes)] if notes else []
    if study.rows:
        runs = _count_runs(study)
        text = f"{runs} run{'s' * (runs != 1)} per seed, {study.seeds} seed{'s' * (study.seeds != 1)} by default."
        text += " The numbers in the table are the paper's." * any(
            _printed(row, column) for row in study.rows for column in row.cells
        )
        text = "\n\n".join(filter(None, [text, "\n".join(_table(study)), _list(_comparisons(study))]))
        parts.append(fold("The run behind each row, and the paper's numbers", text))
    parts.append(f"To run it (`asrnorm report {study.name}` only writes the report):")
    parts.append(f"```\nasrnorm reproduce {study.name}\n```")
    if study.figures:
        where = ", in the report, and above if the kept results suffice to draw them" if study.rows else ""
        parts.append(f"Figures: {', '.join(f'`{figure}`' for figure in study.figures)}{where}.")
    return "\n\n".join(parts) + "\n"


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _carry_blocks(new: str, old: str) -> str:
    """Return the new page with the blocks of results of the old one."""
    filled = {match.group(1): match.group(0) for match in _BLOCK.finditer(old)}
    return _BLOCK.sub(lambda match: filled.get(match.group(1), match.group(0)), new)


def _count_runs(study: Study) -> int:
    tasks = plan(study, seeds=[0], scale="paper", runs=Path("nowhere")).tasks
    return sum(task.kind == "run" for task in tasks)


def _table(study: Study) -> Iterator[str]:
    columns = [column for column in study.columns if any(_printed(row, column) for row in study.rows)]
    copied = any(_sources(row) for row in study.rows)
    heads = ["row", "run", *columns, *["copied from"] * copied]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- | --- |" + " ---: |" * len(columns) + " --- |" * copied
    for row in study.rows:
        numbers = [show(_printed(row, column)) for column in columns]
        yield "| " + " | ".join([row.label, _describe_run(row), *numbers, *[_sources(row)] * copied]) + " |"


def _sources(row: Row) -> str:
    return ", ".join(sorted({cell.printed.copied_from or "" for cell in row.cells.values() if cell.printed}))


def _printed(row: Row, column: str) -> Printed | None:
    return row.cells[column].printed if column in row.cells else None


def show(number: Printed | None) -> str:
    """Return a printed number as text, empty for `None`.

    Example:
        >>> show(Printed(value=62.0, deviation=4.8, decimals=1)), show(Printed(value=0.001, below=True)), show(None)
        ('62.0 ± 4.8', '< 0.001', '')
    """
    if number is None:
        return ""
    form = "g" if number.decimals is None else f".{number.decimals}f"
    deviation = "" if number.deviation is None else f" ± {number.deviation:{form}}"
    return f"{'< ' * number.below}{number.value:{form}}{deviation}{'*' * bool(number.note)}"


def _describe_run(row: Row) -> str:
    if row.not_run:
        return row.not_run
    run: RunSpec = next(cell.runs[0] for cell in row.cells.values() if cell.runs)
    settings = [f"`{name}={value}`" for name, value in run.overrides.items()]
    if run.evaluation is not None:
        settings += ["scored with", *(f"`{name}={value}`" for name, value in run.evaluation.overrides.items())]
    return " ".join([f"`{run.recipe}`", *settings])


def _comparisons(study: Study) -> list[str]:
    lines = []
    for row in dict.fromkeys(pair.row for pair in study.comparisons):
        plain = [pair.against for pair in study.comparisons if pair.row == row and not pair.printed]
        lines += [f"{row} against {_enumerate(plain)}."] if plain else []
    for pair in study.comparisons:
        printed = [f"{column} {show(number)}" for column, number in pair.printed.items()]
        lines += [f"{pair.row} against {pair.against}; the paper's p-values: {', '.join(printed)}."] if printed else []
    return lines


def _enumerate(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _notes(study: Study) -> list[str]:
    marked: dict[str, list[str]] = {}
    for row in study.rows:
        for column, cell in row.cells.items():
            if cell.printed and cell.printed.note:
                marked.setdefault(cell.printed.note, []).append(f"{row.label}, {column}")
    for pair in study.comparisons:
        for column, number in pair.printed.items():
            if number.note:
                marked.setdefault(number.note, []).append(f"p against {pair.against}, {column}")
    return [*(f"\\* {'; '.join(where)}: {note}." for note, where in marked.items()), *study.footnotes]


def main(folder: Path) -> int:
    """Write all pages into a folder and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index": INDEX} | {name: render_page(get_study(name)) for name in list_studies()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(_carry_blocks(text, old), encoding="utf-8")
    return len(pages)


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(__file__).parents[1] / 'docs' / 'studies')} pages\n")
