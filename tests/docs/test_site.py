"""What the site makes of the pages: a menu with each of them once, links that work, formulas without a script."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="pip install -r requirements/docs.txt")
pytest.importorskip("latex2mathml", reason="pip install -r requirements/docs.txt")

ROOT = Path(__file__).parents[2]


def hook(name):
    spec = importlib.util.spec_from_file_location(f"hook_{name}", ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flatten(menu):
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else flatten(value)


def test_every_page_is_in_the_menu_once():
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md"))
    pages += ["new-page.md", "studies/table1.md", "results.md"]
    menu = hook("navigation").build_menu(pages)
    assert sorted(flatten(menu)) == sorted(pages)
    assert {"More": ["new-page.md"]} in menu
    assert {"Studies": [{"table1": "studies/table1.md"}]} in menu


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


def test_formulas_become_mathml():
    module = hook("mathematics")
    text = module.on_page_content(r'<p><span class="arithmatex">\(\mu &lt; 1\)</span></p>', None, None, None)
    assert "<math" in text
    assert "arithmatex" not in text
    assert "μ" in text or "&#x003BC;" in text
