"""Stored measurements have the schema, and the docs show them as they are."""

import json
from pathlib import Path

import pytest

from asrnorm.bench.harness import SCHEMA
from tools.bench_tables import rewrite

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))
PAGES = [page for page in sorted(ROOT.glob("docs/**/*.md")) if "<!-- bench:" in page.read_text()]


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.name)
def test_a_result_names_its_machine_commit_and_baseline(path):
    content = json.loads(path.read_text())
    assert content["schema"] == SCHEMA
    assert content["machine"]["commit"]
    for row in content["rows"]:
        assert row["baseline"] in {other["path"] for other in content["rows"] if other["work"] == row["work"]}
        assert row["p20"] <= row["per_second"] <= row["p80"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_docs_show_the_stored_numbers(page):
    text = page.read_text()
    assert rewrite(text, ROOT / "bench" / "results") == text, "run: make pages"


def test_there_are_results_and_a_page_that_shows_them():
    assert RESULTS
    assert PAGES
