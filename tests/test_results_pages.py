"""The docs show kept results as they are."""

import json
from pathlib import Path

import pytest

from asrnorm.report.markdown import rewrite

ROOT = Path(__file__).parents[1]
BLOCKS = ("<!-- results:", "<!-- study:")
PAGES = [
    page
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")
    if any(block in page.read_text() for block in BLOCKS)
]
KEPT = sorted((ROOT / "results").glob("*.jsonl"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_docs_show_the_kept_results(page):
    text = page.read_text()
    assert rewrite(text, ROOT / "results") == text, "run: python -m asrnorm.report.markdown"


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.name)
def test_a_kept_result_names_its_commit_settings_and_seed(path):
    results = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(result["schema"] == 1 and result["commit"] and result["config_hash"] for result in results)
    keys = [(result["recipe"], result["scale"], result["seed"], result["config_hash"]) for result in results]
    assert len(set(keys)) == len(keys)


def test_there_are_results_and_a_page_that_shows_them():
    assert PAGES
    assert KEPT
