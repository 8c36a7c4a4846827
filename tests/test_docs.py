"""The docs are true: pages exist for every norm, links lead somewhere, code blocks run."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.core.hashing import UNHASHED
from asrnorm.methods import METHODS
from asrnorm.norms import NORMS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Reference pages whose Python blocks run from top to bottom; those of the how-to pages run in tests/docs.
PASTED = (
    "README.md",
    "data/augmentation.md",
    "data/corruptions.md",
    "data/digits_mini.md",
    "data/index.md",
    "data/pacs.md",
    "data/synthetic.md",
    "evaluation/adversarial.md",
    "evaluation/shifted-val.md",
    "hub.md",
    "methods/consistency.md",
    "methods/index.md",
    "methods/rsc.md",
    "norms/asr.md",
    "norms/dsbn.md",
    "norms/dson.md",
    "recipes.md",
    "reports.md",
    "tracking.md",
)
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


def test_the_readme_is_a_page_and_cites_the_paper_as_the_citation_file():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    entry = dict(re.findall(r"^  (\w+) += \{(.*)\},?$", text, re.MULTILINE))
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    assert entry.pop("author").split(" and ") == [f"{a['family-names']}, {a['given-names']}" for a in paper["authors"]]
    assert entry == {
        "title": paper["title"],
        "booktitle": paper["collection-title"],
        "pages": f"{paper['start']}--{paper['end']}",
        "year": str(paper["year"]),
    }


@pytest.mark.parametrize("name", PASTED)
def test_blocks_of_a_page_can_be_pasted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    page = ROOT / "docs" / name
    names = {"__name__": "__page__"}
    for block in blocks(page):
        exec(compile(block, name, "exec"), names)


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_has_a_page_with_its_four_parts(name):
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    assert all(heading in text for heading in HEADINGS)
    assert f"]({name}.md)" in (ROOT / "docs" / "methods" / "index.md").read_text()


def written(value):
    """Return a default as the pages write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Choice):
        return value.name
    return "none" if value is None else str(value)


def table_of_fields(heading):
    """Return the rows under a heading of the page on training: the names in the first cell, and the other cells."""
    text = (ROOT / "docs" / "training.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([\w.]+)`", row[0]), row) for row in rows]


def test_every_field_of_a_run_is_listed_once_with_its_default():
    rows = table_of_fields("What `--set` takes")
    listed = [name for names, _ in rows for name in names if "." not in name]
    fields = {field.name: field for field in dataclasses.fields(RunConfig)}
    assert sorted([*listed, "optim"]) == sorted(fields)
    assert any(names == ["optim.FIELD"] for names, _ in rows)
    for names, (first, default, *_) in rows:
        if len(names) > 1 or names[0].startswith("optim"):
            continue  # without a default of their own
        assert default.strip("`") == written(fields[names[0]].default)
        assert first.endswith("*") == (names[0] in UNHASHED)


def test_every_field_of_the_optimizer_is_listed():
    listed = [name for names, _ in table_of_fields("Optimizer") for name in names]
    assert sorted(listed) == sorted(field.name for field in dataclasses.fields(OptimConfig))


def test_the_pictures_of_the_readme_are_in_the_tree_and_small():
    names = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text())
    assert len(names) == 3
    assert all((ROOT / name).stat().st_size < 150_000 for name in names)
