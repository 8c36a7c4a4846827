"""The docs of the studies are what the studies say."""

from dataclasses import replace
from pathlib import Path

import pytest

from asrnorm.studies import get_study, list_studies
from tools.study_pages import _BLOCK, INDEX, main, render_page

DOCS = Path(__file__).parents[2] / "docs" / "studies"


@pytest.mark.parametrize("name", list_studies())
def test_every_study_has_its_page(name):
    page = (DOCS / f"{name}.md").read_text()
    without_results = _BLOCK.sub(r"\1\3", page)
    assert without_results == render_page(get_study(name)), "run: python -m tools.study_pages"
    assert f"asrnorm reproduce {name}\n" in page


def test_the_index_has_them_all():
    text = (DOCS / "index.md").read_text()
    assert _BLOCK.sub(r"\1\3", text) == INDEX, "run: python -m tools.study_pages"
    assert all(f"]({name}.md)" in text for name in list_studies() if get_study(name).rows)


def test_pages_show_numbers_recipes_slips_and_reasons():
    page = render_page(get_study("table2"))
    assert "| PGD | `cifar10c.pgd_bn` | 73.1 ± 0.5 |" in page
    assert "| 61.6* |" in page
    assert "average to 62.6" in page
    study = get_study("table2")
    rows = tuple(replace(row, not_run="not run: why") if row.label == "ST" else row for row in study.rows)
    assert "| ST | not run: why |" in render_page(replace(study, rows=rows))
    assert "the paper's p-values: Level 1 0.199" in render_page(get_study("table10"))
    assert "- ADA + ASR-Norm against ADA and ERM + ASR-Norm.\n- ERM + ASR-Norm against ERM.\n" in page
    assert "scored with `norm=bn_test` `evaluate_batch=16`" in render_page(get_study("table5"))


def test_writing_them_leaves_one_file_each(tmp_path):
    assert main(tmp_path) == len(list(tmp_path.glob("*.md"))) == len(list_studies()) + 1


def test_writing_them_again_leaves_the_results_on_them_alone(tmp_path):
    main(tmp_path)
    path = tmp_path / "table3.md"
    filled = path.read_text().replace("<!-- study: table3 -->\n", "<!-- study: table3 -->\n| 76.7 |\n")
    path.write_text(filled.replace("# Table 3", "# An old title"))
    main(tmp_path)
    assert path.read_text() == filled
