"""Every relative link of the docs leads to a file, and every anchor to a heading, as the code host makes them."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(\s*<?(?!https?:|mailto:)([^)\s>#]*)(?:#([^)\s>]*))?>?(?:\s+\"[^\"]*\")?\s*\)")
FENCE = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")


def without_code(text):
    return CODE.sub("`code`", FENCE.sub("", text))


def slugify(heading):
    """The code host's rule: lower case, spaces to hyphens, everything else that is no word character dropped."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def anchors(page):
    text = FENCE.sub("", page.read_text())
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#{1,6} (.+?)#*$", text, re.MULTILINE):
        slug = slugify(heading)
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(slug if count == 0 else f"{slug}-{count}")
    return names | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def broken(page, text):
    for target, anchor in LINK.findall(without_code(text)):
        place = (page.parent / target).resolve() if target else page
        if not place.exists():
            yield f"{target}: no such file"
        elif anchor and place.suffix == ".md" and anchor not in anchors(place):
            yield f"{target}#{anchor}: no such heading"
        elif not place.is_relative_to(ROOT):
            yield f"{target}: outside the source tree"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_resolve(page):
    assert not list(broken(page, page.read_text()))


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(ROOT / "docs")], ids=lambda p: p.stem)
def test_a_page_has_one_title_and_it_stands_first(page):
    text = FENCE.sub("", page.read_text())
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(ROOT / "docs")], ids=lambda p: p.stem)
def test_a_page_begins_with_a_sentence_that_says_what_it_is_for(page):
    first = page.read_text().split("\n", 1)[1].strip().split("\n\n")[0]
    assert re.match(r"[A-Z`*]", first), "a page begins with a table, a list, code or mid-sentence"
    assert not first.startswith(("```", "* ")), first
    assert first.rstrip().endswith((".", ":")), first


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(ROOT / "docs")], ids=lambda p: p.stem)
def test_lists_and_tables_stand_apart_from_the_text_before(page):
    """The code host does without the blank line, the site does not."""
    lines = FENCE.sub("", page.read_text()).splitlines()
    for before, line in pairwise(lines):
        if not before.strip() or before.startswith(("#", "<!--")):
            continue
        starts_list = re.match(r"([-*+]|\d+\.) ", line) and not re.match(r"\s*([-*+]|\d+\.) |\s+", before)
        starts_table = line.startswith("|") and not before.startswith("|")
        assert not starts_list, line
        assert not starts_table, line


@pytest.mark.parametrize(
    ("text", "count"),
    [("[a](gone.md)", 1), ("[a](README.md#nowhere)", 1), ("[a](README.md#install)", 0), ("`[a](gone.md)`", 0)],
)
def test_the_check_itself_finds_what_is_broken(text, count):
    assert len(list(broken(ROOT / "CHANGELOG.md", text))) == count
