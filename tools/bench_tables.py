"""Tables in the docs from stored measurements: nobody types a number.

A page names a file of results in a comment, `<!-- bench: data--h200.json -->`; what stands between it and
`<!-- end bench -->` is written from that file by `python -m tools.bench_tables` and held to it by a test. The block
`<!-- bench: targets--h200 -->` is the table of targets, answered from all files of that machine.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from asrnorm.bench.column import COLUMNS
from tools.bench_targets import render_targets

_TARGETS = "targets--"
_BLOCK = re.compile(r"(<!-- bench: (\S+) -->\n).*?(<!-- end bench -->)", re.DOTALL)


def render(content: dict[str, Any]) -> str:
    """Return the table of one result file in Markdown, with the machine it was measured on.

    Example:
        >>> row = {"work": "sum", "path": "a", "per_second": 1000.0, "p20": 900.0, "p80": 1100.0, "ratio": 1.0}
        >>> machine = {"cpu": "X", "cores": 2, "threads": 2, "gpu": None, "python": "3.11", "torch": "2", "pillow": "1"}
        >>> commit = {"commit": "abc", "time": "2026-01-01T00:00:00Z"}
        >>> print(render({"machine": {**machine, **commit}, "suite": "data", "rows": [row]}))
        X, 2 cores, 2 threads; Python 3.11, torch 2, Pillow 1; commit abc, 2026-01-01.
        <BLANKLINE>
        | work | way | images/s | p20 to p80 | times the baseline |
        | --- | --- | ---: | ---: | ---: |
        | sum | a | 1,000 | 900 to 1,100 | 1.00 |
    """
    machine, columns = content["machine"], COLUMNS[content["suite"]]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads{gpu}; "
        f"Python {machine['python']}, torch {machine['torch']}, Pillow {machine['pillow']}; "
        f"commit {machine['commit']}, {machine['time'][:10]}.",
        "",
    ]
    if content["suite"] == "corruptions":
        return "\n".join([*lines, *_compare_ways(content["rows"])])
    lines += [
        f"| work | way | {' | '.join(column.heading for column in columns)} |",
        f"| --- | --- |{' ---: |' * len(columns)}",
    ]
    previous = None
    for row in content["rows"]:
        work = "" if row["work"] == previous else row["work"]
        previous = row["work"]
        cells = " | ".join(column.show(row) for column in columns)
        lines.append(f"| {work} | {row['path']} | {cells} |")
    return "\n".join(lines)


def _compare_ways(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table with a line per work and a column per way, in images per second."""
    ways = list(dict.fromkeys(row["path"] for row in rows))
    rates: dict[str, dict[str, str]] = {}
    for row in rows:
        rates.setdefault(row["work"], {})[row["path"]] = f"{row['per_second']:,.0f}"
    cells = ([work, *(by_way.get(way, "") for way in ways)] for work, by_way in rates.items())
    heading = f"| images per second | {' | '.join(ways)} |"
    return [heading, f"| --- |{' ---: |' * len(ways)}", *(f"| {' | '.join(line)} |" for line in cells)]


def rewrite(text: str, results: Path) -> str:
    """Return a page with every table rewritten from the files in `results`."""

    def block(match: re.Match[str]) -> str:
        name = match.group(2)
        if name.startswith(_TARGETS):
            table = render_targets(results, name.removeprefix(_TARGETS))
        else:
            table = render(json.loads((results / name).read_text()))
        return f"{match.group(1)}{table}\n{match.group(3)}"

    return _BLOCK.sub(block, text)


def main(root: Path) -> int:
    """Rewrite the pages of a source tree; return how many changed."""
    changed = 0
    for page in sorted(root.glob("docs/**/*.md")):
        text = page.read_text()
        new = rewrite(text, root / "bench" / "results")
        if new != text:
            page.write_text(new)
            changed += 1
    return changed


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))} pages changed\n")
