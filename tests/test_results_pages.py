"""The docs show kept results as they are."""

import json
from pathlib import Path

import pytest

from asrnorm.studies import get_study, list_studies
from tools import result_figures
from tools.result_tables import rewrite

ROOT = Path(__file__).parents[1]
BLOCKS = ("<!-- results:", "<!-- study:", "<!-- overview:", "<!-- progress")
PAGES = [
    page
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")
    if any(block in page.read_text() for block in BLOCKS)
]
KEPT = sorted((ROOT / "results").glob("*.jsonl"))
FIGURES = [
    (name, figure, scale)
    for name in list_studies()
    for figure in get_study(name).figures
    for scale in result_figures.SCALES
]
DRAW = "run: python -m tools.result_figures, then python -m tools.result_tables"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_docs_show_the_kept_results(page):
    text = page.read_text()
    assert rewrite(text, ROOT / "results", page) == text, "run: python -m tools.result_tables"


@pytest.mark.parametrize(("name", "figure", "scale"), FIGURES)
def test_the_figures_are_of_the_kept_results(name, figure, scale):
    path = ROOT / result_figures.FOLDER / result_figures.file_name(name, figure, scale)
    found = result_figures.collect_kept(get_study(name), ROOT / "results", scale)
    if path.exists():  # not drawn again: another matplotlib gives other bytes
        mark = f"<!-- drawn from {result_figures.fingerprint(found)} -->"
        assert path.read_text().startswith(mark), f"of other results; {DRAW}"
    else:
        assert result_figures.try_figure(figure, found) is None, f"it can be drawn and is not there; {DRAW}"


def test_every_figure_is_of_a_study():
    names = {result_figures.file_name(*figure) for figure in FIGURES}
    assert {path.name for path in (ROOT / result_figures.FOLDER).iterdir()} <= names, DRAW


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.name)
def test_a_kept_result_names_its_commit_settings_and_seed(path):
    results = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(result["schema"] == 1 and result["commit"] and result["config_hash"] for result in results)
    keys = [(result["recipe"], result["scale"], result["seed"], result["config_hash"]) for result in results]
    assert len(set(keys)) == len(keys)


def test_there_are_results_and_a_page_that_shows_them():
    assert PAGES
    assert KEPT
