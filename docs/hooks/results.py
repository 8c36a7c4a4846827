"""The page of results: every file of kept results as a table. Nobody types a number."""

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "results.md"
_MOST_DOMAINS = 12  # columns that fit; CIFAR-10-C's 95 are shown by severity
_HEAD = """# Results

Every kept run (`results/*.jsonl`, one `result.json` a line), as it is written there: this page is made from those
files when the site is built. Runs that several [studies](studies/index.md) share are kept once, and all of them show
them. What stands behind a row is its recipe ([recipes](recipes.md)), run as its scale says; what is measured, and how,
is on the page on [evaluation](evaluation/metrics.md).
"""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the page."""
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    paths = [str(root), str(root / "src")]
    sys.path[:0] = paths
    try:
        content = "\n".join([_HEAD, *write_sections(root / "results")])
    finally:
        for path in paths:
            sys.path.remove(path)
    files.append(File.generated(config, PAGE, content=content))
    return files


def write_sections(folder: Path) -> Iterator[str]:
    """Yield a section for each file: a study's leads to its page, others have tables of runs that can share one.

    Runs of a study may differ in more than recipe and seed, so that only its own table tells them apart.
    """
    from tools.result_tables import render  # here, where sys.path has it; it imports no torch

    for path in sorted(folder.glob("*.jsonl")):
        yield f"## {path.stem}\n"
        if (folder.parent / "docs" / "studies" / f"{path.stem}.md").is_file():
            count = len(path.read_text(encoding="utf-8").splitlines())
            page = f"studies/{path.stem}.md#results"
            yield f"{count} results of a study: [ours beside the paper's, with n and p]({page}).\n"
            continue
        tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            result = condense(json.loads(line))
            names = (result["source"]["name"], *(domain["name"] for domain in result["domains"]))
            tables.setdefault((result["recipe"].split(".")[0], result["scale"], *names), []).append(result)
        for results in tables.values():
            yield render(results) + "\n"


def condense(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with its domains averaged by severity, where there are too many of them for columns."""
    domains = result["domains"]
    if len(domains) <= _MOST_DOMAINS or not all("/" in domain["name"] for domain in domains):
        return result
    by_level: dict[str, list[float]] = {}
    for domain in domains:
        by_level.setdefault(domain["name"].rsplit("/", 1)[1], []).append(domain["accuracy"])
    means = [{"name": f"severity {level}", "accuracy": statistics.fmean(by_level[level])} for level in sorted(by_level)]
    return {**result, "domains": means}
