"""The docs show kept results as they are."""

import json
from pathlib import Path

import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import get_study, list_studies
from asrnorm.studies.decay import decay_curve
from asrnorm.studies.plan import iterate_specs
from asrnorm.studies.spec import scored_hash
from asrnorm.studies.store import find_details, read_log
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


def test_every_kept_result_is_found_by_a_study():
    kept = {}
    for path in KEPT:
        if path.stem != "demo":  # shown as a file of results, not as a study
            for result in map(json.loads, path.read_text().splitlines()):
                kept[result["config_hash"]] = (result["seed"], result["scale"])
    specs = {spec for name in list_studies() for spec in iterate_specs(get_study(name))}
    found = {scored_hash(spec, *where) for spec in specs for where in set(kept.values())}
    assert not kept.keys() - found, "these results are of no row of any study"


def test_the_lambdas_on_pacs_end_where_weight_decay_alone_puts_them():
    """The notes of the PACS tables say so, with these numbers."""
    details = find_details(ROOT / "results")
    ends, gates, distances = [], [], {True: [], False: []}
    configs = [
        spec.config(seed, "paper") for spec in set(iterate_specs(get_study("fig-lambda-pacs"))) for seed in (0, 1)
    ]
    for config in configs:
        rows = [row for row in read_log(details.get(content_hash(config))) if row.get("lambdas")]
        for name, value in (pair for layer in rows[-1]["lambdas"].values() for pair in layer.items()) if rows else ():
            decays = config.optim.decay_lambdas
            distances[decays].append(abs(value - decay_curve(config, name, [rows[-1]["step"]])[0]))
            if decays:
                (ends if name in ("lambda_mu", "lambda_sigma") else gates).append(value)
    assert len(ends) == len(gates) == 4 * 2 * 10 * 2  # sources, seeds, layers, two lambdas
    assert max(distances[True]) < 0.0011
    assert 0 < max(distances[False]) < 0.0009
    assert (round(min(ends), 3), round(max(ends), 3)) == (0.049, 0.052)
    assert (round(min(gates), 3), round(max(gates), 3)) == (0.007, 0.008)


def test_there_are_results_and_a_page_that_shows_them():
    assert PAGES
    assert KEPT
