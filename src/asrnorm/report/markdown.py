"""Tables in the docs from kept results: nobody types a number.

A page names a file of results in a comment, `<!-- results: demo.jsonl -->`; what stands between it and
`<!-- end results -->` is written from that file by `python -m asrnorm.report.markdown` and held to it by a test.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end results -->)", re.DOTALL)


def render(results: Iterable[dict[str, Any]]) -> str:
    """Return mean and deviation (n - 1) of the accuracy on every domain, a row for each recipe and scale.

    Example:
        >>> domain = {"name": "uci", "accuracy": 0.5}
        >>> common = {"recipe": "x", "scale": "paper", "selection": "last", "commit": "abc", "steps": 9}
        >>> result = {**common, "source": {"name": "mnist", "accuracy": 0.9}, "domains": [domain]}
        >>> result["average_accuracy"] = 0.5
        >>> print(render([result, result]))
        | recipe | n | mnist (source) | uci | unseen, average |
        | --- | ---: | ---: | ---: | ---: |
        | `x` | 2 | 90.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 |
        <BLANKLINE>
        Accuracy in %, mean ± standard deviation (n - 1); paper scale, 9 steps, selection `last`; commit abc.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    everything = list(results)
    for result in everything:
        rows.setdefault(result["recipe"], []).append(result)
    first = everything[0]
    names = [f"{first['source']['name']} (source)", *(domain["name"] for domain in first["domains"]), "unseen, average"]
    lines = ["| recipe | n | " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) + 1)]
    for recipe, runs in rows.items():
        columns = zip(*(_accuracies(run) for run in runs), strict=True)
        lines.append(f"| `{recipe}` | {len(runs)} | " + " | ".join(map(_mean, columns)) + " |")
    facts = [f"{_joined(everything, 'scale')} scale", f"{_joined(everything, 'steps')} steps"]
    lines += [
        "",
        f"Accuracy in %, mean ± standard deviation (n - 1); {', '.join(facts)}, selection "
        f"`{_joined(everything, 'selection')}`; commit {_joined(everything, 'commit', 12)}.",
    ]
    return "\n".join(lines)


def _accuracies(result: dict[str, Any]) -> list[float]:
    return [result["source"]["accuracy"], *(d["accuracy"] for d in result["domains"]), result["average_accuracy"]]


def _mean(values: tuple[float, ...]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def _joined(results: list[dict[str, Any]], key: str, most: int | None = None) -> str:
    return ", ".join(dict.fromkeys(str(result[key])[:most] for result in results))


def rewrite(text: str, folder: Path) -> str:
    """Return a page with every table written anew from the files in `folder`."""

    def block(match: re.Match[str]) -> str:
        lines = (folder / match.group(2)).read_text().splitlines()
        return f"{match.group(1)}{render([json.loads(line) for line in lines])}\n{match.group(3)}"

    return _BLOCK.sub(block, text)


def main(root: Path) -> int:
    """Rewrite the pages of a source tree; return how many changed."""
    changed = 0
    for page in sorted([*root.glob("docs/**/*.md"), root / "README.md"]):
        text = page.read_text()
        new = rewrite(text, root / "results")
        if new != text:
            page.write_text(new)
            changed += 1
    return changed


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))} pages changed\n")
