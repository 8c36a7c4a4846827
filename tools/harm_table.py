"""Write the table of what `make fuzz` and `make torture` tried into docs/training.md: `python -m tools.harm_table`.

It reads their reports (`--out`) in `bench/harm`, named `<module>--<commit>--<seed>.json`. Failures that have
been mended since are also listed under `mended`.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "bench" / "harm"
PAGE = ROOT / "docs" / "training.md"
BEGIN, END = "<!-- harm -->\n", "<!-- end harm -->\n"
_PHASES = "training, in its phases"


def read_reports(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the reports of each module."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        found[path.name.split("--")[0]].append(json.loads(path.read_text("utf-8")))
    return dict(found)


def format_table(reports: dict[str, list[dict[str, Any]]]) -> str:
    """Return the tables of inputs by kind and of kills by command."""
    fuzzed = reports.get("fuzz", [])
    kinds = (
        {kind: sum(report["kinds"].get(kind, 0) for report in fuzzed) for kind in fuzzed[-1]["kinds"]} if fuzzed else {}
    )
    failed = sum(report["failed"] for report in fuzzed)
    all_mended = failed > 0 and sum(len(report.get("mended", ())) for report in fuzzed) == failed
    slowest = max((max(report["slowest_seconds"].values()) for report in fuzzed), default=0.0)
    kills: dict[str, int] = defaultdict(int)
    differing: dict[str, int] = defaultdict(int)
    mended: dict[str, int] = defaultdict(int)
    for report in reports.get("torture", []):
        for command, count in report["commands"].items():
            kills[command] += count
            differing[command] += sum(line.startswith(f"{command}: ") for line in report["differing"])
            mended[command] += sum(line.startswith(f"{command}: ") for line in report.get("mended", ()))
    for report in reports.get("kill_run", []):
        kills[_PHASES] += report["total_kills"]
        differing[_PHASES] += len(report["differing"])
    head = "| inputs or kills | how often | failed |\n| --- | ---: | ---: |\n"
    inputs = f"inputs of {len(kinds)} kinds, the slowest {slowest:.1f} s"
    rows = [f"| {inputs} | {sum(kinds.values()):,} | {failed}{', mended' if all_mended else ''} |\n"]
    rows += [
        f"| kills of {name if name == _PHASES else f'`{name}`'} | {count:,} | {differing[name]}"
        f"{', mended' if mended[name] and mended[name] == differing[name] else ''} |\n"
        for name, count in kills.items()
    ]
    rows.append(f"| all kills | {sum(kills.values()):,} | {sum(differing.values())} |\n")
    return head + "".join(rows)


def main() -> None:
    """Replace the table of the page."""
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + format_table(read_reports(REPORTS)) + END + after, "utf-8")


if __name__ == "__main__":
    main()
