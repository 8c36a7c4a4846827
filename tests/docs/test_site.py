"""What the site makes of the pages: a menu with each of them once, links that work, formulas without a script."""

import functools
import html
import http.server
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import asrnorm
from asrnorm.methods import METHODS
from asrnorm.norms import NORMS
from asrnorm.studies import list_studies
from helpers.browser import CHROMIUM, open_browser

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
    pages += ["new-page.md", "studies/table99.md"]
    menu = hook("navigation").build_menu(pages)
    assert sorted(flatten(menu)) == sorted(pages)
    assert {"More": ["new-page.md"]} in menu
    assert sorted(f"studies/{name}.md" for name in (*list_studies(), "index", "table99")) == sorted(
        page for page in flatten(next(part["Results"] for part in menu if "Results" in part)) if "studies/" in page
    )


def test_the_menu_shows_titles_and_not_registry_names():
    menu = hook("navigation").build_menu(["norms/in.md", "studies/table3.md", "studies/pacs-best.md"])
    assert menu == [  # a page without a title of its own here shows its heading
        {"Norms": ["norms/in.md"]},
        {"Results": [{"Tables of the paper": ["studies/table3.md"]}, {"Our studies": ["studies/pacs-best.md"]}]},
    ]
    names = {"norms": NORMS.names(), "methods": METHODS.names(), "studies": list_studies()}
    for folder, found in names.items():
        for name in found:
            heading = (ROOT / "docs" / folder / f"{name}.md").read_text().splitlines()[0]
            assert not heading.startswith((f"# `{name}`", f"# {name}:")), heading


def test_pages_with_a_weight_in_the_search_exist():
    assert all((ROOT / "docs" / page).is_file() for page in hook("navigation").BOOSTS)


def test_the_api_page_has_every_public_name():
    names = re.findall(r"^::: asrnorm\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(asrnorm.__all__) - {"__version__"})


def test_links_that_leave_the_docs_are_made_right():
    rewrite = hook("outside").rewrite
    assert rewrite("[a](../ARCHITECTURE.md#tests)", "training.md") == "[a](architecture.md#tests)"
    assert rewrite("[a](../../CHANGELOG.md)", "norms/asr.md") == "[a](../changelog.md)"
    assert rewrite("[a](docs/norms/asr.md)", "contributing.md") == "[a](norms/asr.md)"
    assert rewrite("see [`a`](../examples/own_folder.py)", "training.md") == "see `a`"
    assert rewrite("[a](../conversion.md)", "norms/asr.md") == "[a](../conversion.md)"


def test_links_after_a_block_of_code_are_made_right_and_those_in_it_are_left():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="quickstart.md"))
    text = "a\n\n```\n[b](../examples/tour.ipynb)\n```\n\n[c](../examples/tour.ipynb)\n"
    assert hook("outside").on_page_markdown(text, page, None, None) == text.replace("[c](../examples/tour.ipynb)", "c")


def test_the_marks_of_two_footnotes_are_no_link():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="studies/table1.md"), meta={})
    assert "][" not in hook("navigation").on_page_markdown("| (52.5)[1][2] |", page, None, None)


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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; with --strict, a warning fails the build, unless --quiet hides it."""
    for name in ("mkdocs", "material", "latex2mathml", "mkdocstrings"):
        pytest.importorskip(name, reason="pip install -r requirements/docs.txt")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_asks_no_other_host(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=.?https?:", text), page
        assert "arithmatex" not in text, page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(.?https?:|@import", sheet.read_text()), sheet


def test_the_api_page_shows_the_docstring_of_every_public_name(site):
    text = (site / "api.html").read_text()
    for name in set(asrnorm.__all__) - {"__version__"}:
        section = text.partition(f'id="asrnorm.{name}"')[2].partition('<h3 id="asrnorm.')[0]
        summary = inspect.getdoc(getattr(asrnorm, name)).splitlines()[0].split("`")[0].strip()
        assert html.escape(summary, quote=False) in html.unescape(section).replace("\n", " "), name
    assert "&gt;&gt;&gt;" not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL)  # doctests are code


@pytest.fixture(scope="module")
def searcher(site):
    """A function that types words into the search of the site, and returns the pages that it finds, best first."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, open_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()

        def search(words):
            page.visit(f"http://127.0.0.1:{server.server_port}/index.html")
            found = page.run(f"({SEARCH})({json.dumps(words)})")
            return [address.partition("?")[0].lstrip("/") for address in found]

        yield search
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


SEARCH = """async (words) => {
  const until = async (ready) => {
    for (let i = 0; i < 300 && !ready(); i++) await new Promise((done) => setTimeout(done, 50));
  };
  await until(() => document.querySelector(".md-search__input"));
  const box = document.querySelector(".md-search__input");
  box.focus();
  box.value = words;
  const found = () => [...document.querySelectorAll(".md-search-result__item > a")];
  await until(() => (box.dispatchEvent(new Event("keyup", {bubbles: true})), found().length));
  return found().map((link) => link.getAttribute("href").replace(location.origin, ""));
}"""


@pytest.mark.browser
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("install", "install.html"),
        ("ASRNorm2d", "api.html"),
        ("calibrate", "conversion.html"),
        ("own images", "how-to/own-images.html"),
        ("which norm", "norms/index.html"),
    ],
)
def test_the_search_finds_the_page_first(searcher, words, page):
    assert searcher(words)[:1] == [page]
