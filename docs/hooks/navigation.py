"""The menu of the site: sections in reading order, filled by patterns, so that a new page needs no entry.

A pattern that no page meets is left out, and a page that no pattern takes goes to the section `More`: the build stays
strict while pages come and go.
"""

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Section, then titles with patterns of pages. `None` takes the page's own heading.
# A third level is a tuple of entries in place of a pattern.
LAYOUT: tuple[tuple[str, tuple[tuple[str | None, Any], ...]], ...] = (
    (
        "Start",
        (
            ("asrnorm", "README.md"),
            ("Install", "install.md"),
            ("Quick start", "quickstart.md"),
            ("The demo", "demo.md"),
            ("Concepts", "concepts.md"),
            ("The command line", "command-line.md"),
        ),
    ),
    (
        "How to",
        (
            ("Use your own images", "how-to/own-images.md"),
            ("What should I do with my images?", "how-to/which-training.md"),
            ("Use your own training loop", "how-to/own-loop.md"),
            ("Train a network of your own", "how-to/model.md"),
            ("Add a norm", "how-to/norm.md"),
            ("Add a method", "how-to/method.md"),
            ("Add a block", "how-to/block.md"),
            ("Add a suite", "how-to/suite.md"),
            ("Add a study", "how-to/study.md"),
            (None, "how-to/*.md"),
        ),
    ),
    (
        "Norms",
        (
            ("Which norm?", "norms/index.md"),
            ("Convert a network", "conversion.md"),
            (None, "norms/asr.md"),
            (None, "norms/*.md"),
        ),
    ),
    ("Methods", (("Which method?", "methods/index.md"), ("Backbones", "models.md"), (None, "methods/*.md"))),
    (
        "Data",
        (
            ("Overview", "data/index.md"),
            ("Get the data", "data/fetch.md"),
            (None, "data/digits.md"),
            (None, "data/cifar10c.md"),
            (None, "data/pacs.md"),
            (None, "data/folder.md"),
            (None, "data/digits_mini.md"),
            ("Corruptions", "data/corruptions.md"),
            ("Augmentation", "data/augmentation.md"),
            ("How digits_mini is made", "data/synthetic.md"),
            (None, "data/*.md"),
        ),
    ),
    (
        "Use",
        (
            ("Training", "training.md"),
            ("Tracking", "tracking.md"),
            ("Recipes", "recipes.md"),
            ("Metrics", "evaluation/metrics.md"),
            ("Attacks", "evaluation/adversarial.md"),
            ("Choose a checkpoint", "evaluation/shifted-val.md"),
            ("Choose settings", "evaluation/search.md"),
            ("Audit", "audit.md"),
            ("Reports", "reports.md"),
            ("Export", "export.md"),
            ("Hugging Face Hub", "hub.md"),
            ("Lightning, Accelerate, ...", "frameworks.md"),
            ("Speed", "speed.md"),
            ("All speed measurements", "measurements.md"),
            ("API reference", "api.md"),
        ),
    ),
    (
        "Results",
        (  # as `asrnorm list studies` has them
            ("At a glance", "studies/index.md"),
            ("How it was reproduced", "reproduction.md"),
            ("Run the studies", "reproduce.md"),
            ("The rule of the tables", "evaluation/rule.md"),
            ("What source scores say", "evaluation/proxies.md"),
            (None, "evaluation/*.md"),
            ("Tables of the paper", ((None, "studies/table?.md"), (None, "studies/table??.md"))),
            ("Figures of the paper", ((None, "studies/fig-*.md"),)),
            ("Our studies", ((None, "studies/*.md"),)),
        ),
    ),
    (
        "Project",
        (
            ("Architecture", "architecture.md"),
            ("Contributing", "contributing.md"),
            ("Security", "security.md"),
            ("Changelog", "changelog.md"),
        ),
    ),
    ("More", ((None, "**/*.md"),)),
)
# Weights of pages in the search, for those whose word others use more often; else 1, for studies 0.5.
BOOSTS = {
    "install.md": 3,
    "api.md": 3,
    "conversion.md": 6,
    "how-to/own-images.md": 6,
    "training.md": 2,
    "norms/index.md": 3,
    "measurements.md": 0.3,
}


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Set the menu once all pages are known, those of the other hooks among them."""
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = build_menu(pages)
    return files


on_files.mkdocs_priority = -100  # type: ignore[attr-defined]


def build_menu(pages: list[str]) -> list[Any]:
    """Return the menu of these pages, each of them once."""
    left = dict.fromkeys(pages)
    sections = [(section, _fill(entries, left)) for section, entries in LAYOUT]
    return [{section: entries} for section, entries in sections if entries]


def _fill(entries: tuple[tuple[str | None, Any], ...], left: dict[str, None]) -> list[Any]:
    """Take the pages of these entries out of those that are left, and return them as a menu."""
    menu: list[Any] = []
    for title, pattern in entries:
        if isinstance(pattern, tuple):
            inner = _fill(pattern, left)
            menu += [{title: inner}] if inner else []
            continue
        for page in [page for page in left if _matches(page, pattern)]:
            del left[page]
            menu.append(page if title is None else {title: page})
    return menu


def _matches(page: str, pattern: str) -> bool:
    if pattern == "**/*.md":
        return True
    return PurePosixPath(page).match(pattern) and page.count("/") == pattern.count("/")


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Give the tables of studies the room of the contents beside them, and pages their weight in the search."""
    if page.file.src_uri.startswith("studies/"):
        page.meta.setdefault("hide", ["toc"])
        markdown = re.sub(r"\](?=\[\d+\])", "]<!-- -->", markdown)  # marks of two footnotes, [1][2], are no link
    weight = 0.5 if page.file.src_uri.startswith("studies/") else 1
    page.meta.setdefault("search", {"boost": BOOSTS.get(page.file.src_uri, weight)})
    return markdown
