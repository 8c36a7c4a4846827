"""The docs are true: pages exist for every norm, links lead somewhere, code blocks run."""

import re
from pathlib import Path

import pytest

from asrnorm.methods import METHODS
from asrnorm.norms import NORMS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HEADINGS = ("## Equation", "## Code", "## Departures", "## When to use it")


@pytest.mark.parametrize("name", NORMS.names())
def test_every_norm_has_a_page_with_its_four_parts(name):
    text = (ROOT / "docs" / "norms" / f"{name}.md").read_text()
    assert all(heading in text for heading in HEADINGS)
    assert f"]({name}.md)" in (ROOT / "docs" / "norms" / "index.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_named_files_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`(?:asrnorm|tests)/[\w/]+\.py`", text):
        path = target.strip("`")
        assert (ROOT / path).exists() or (ROOT / "src" / path).exists(), path


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(blocks(ROOT / "README.md"))))
def test_the_quick_start_runs_as_printed(index):
    block = blocks(ROOT / "README.md")[index]
    if "torchvision" in block:
        pytest.importorskip("torchvision", reason="torchvision is not installed")
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_has_a_page_with_its_four_parts(name):
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    assert all(heading in text for heading in HEADINGS)
    assert f"]({name}.md)" in (ROOT / "docs" / "methods" / "index.md").read_text()
