"""What the site makes of the pages: a menu with each of them once, links that work, formulas without a script."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asrnorm.studies import list_studies

ROOT = Path(__file__).parents[2]


def hook(name):
    spec = importlib.util.spec_from_file_location(f"hook_{name}", ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tools():
    """Hooks themselves need neither; `make docs` installs them."""
    for name in ("mkdocs", "material", "latex2mathml"):
        pytest.importorskip(name, reason="pip install -r requirements/docs.txt")


def flatten(menu):
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else flatten(value)


def test_every_page_is_in_the_menu_once():
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md"))
    pages += ["new-page.md", "studies/table99.md", "results.md"]
    menu = hook("navigation").build_menu(pages)
    assert sorted(flatten(menu)) == sorted(pages)
    assert {"More": ["new-page.md"]} in menu
    studies = next(part["Studies"] for part in menu if "Studies" in part)
    assert {"table99": "studies/table99.md"} in studies
    names = [next(iter(entry)) for entry in studies]
    assert [name for name in names if name not in ("Overview", "table99")] == list(list_studies())


def test_links_that_leave_the_docs_are_made_right():
    rewrite = hook("outside").rewrite
    assert rewrite("[a](../ARCHITECTURE.md#tests)", "training.md") == "[a](architecture.md#tests)"
    assert rewrite("[a](../../CHANGELOG.md)", "norms/asr.md") == "[a](../changelog.md)"
    assert rewrite("[a](docs/norms/asr.md)", "contributing.md") == "[a](norms/asr.md)"
    assert rewrite("see [`a`](../examples/own_folder.py)", "training.md") == "see `a`"
    assert rewrite("[a](../conversion.md)", "norms/asr.md") == "[a](../conversion.md)"


def test_a_result_with_many_domains_is_shown_by_severity():
    domains = [{"name": f"{kind}/{level}", "accuracy": level / 10} for kind in "abc" for level in range(1, 6)]
    condensed = hook("results").condense({"recipe": "x", "domains": domains})
    assert [(d["name"], round(d["accuracy"], 6)) for d in condensed["domains"]] == [
        (f"severity {level}", level / 10) for level in range(1, 6)
    ]


@pytest.mark.usefixtures("tools")
def test_formulas_become_mathml():
    module = hook("mathematics")
    text = module.on_page_content(r'<p><span class="arithmatex">\(\mu &lt; 1\)</span></p>', None, None, None)
    assert "<math" in text
    assert "arithmatex" not in text
    assert "μ" in text or "&#x003BC;" in text


@pytest.mark.usefixtures("tools")
def test_a_formula_that_cannot_be_drawn_fails_the_build():
    from mkdocs.exceptions import PluginError

    module = hook("mathematics")
    assert "<munder>" in module.translate(r"\arg\max_x f(x)", is_block=True)
    with pytest.raises(PluginError, match="nosuch"):
        module.translate(r"\nosuch x", is_block=False)


def test_kept_results_are_shown_table_by_table():
    text = "\n".join(hook("results").write_sections(ROOT / "results"))
    assert "## demo" in text
    assert "| `digits_mini.rsda_asr` | 3 |" in text


def test_the_results_of_a_study_are_on_its_page():
    text = "\n".join(hook("results").write_sections(ROOT / "results"))
    section = text.partition("## pacs-reading")[2].partition("## ")[0]
    assert "](studies/pacs-reading.md#results)" in section
    assert "|" not in section  # runs at two learning rates are not one row


@pytest.mark.usefixtures("tools")
def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=.?https?:", text), page
        assert "arithmatex" not in text, page
    for sheet in tmp_path.rglob("*.css"):
        assert not re.findall(r"url\(.?https?:|@import", sheet.read_text()), sheet
