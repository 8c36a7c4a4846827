"""The menu of the site: sections in reading order, filled by patterns, so that a new page needs no entry.

A pattern that no page meets is left out, and a page that no pattern takes goes to the section `More`: the build stays
strict while pages come and go.
"""

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Section, then titles with patterns of pages. `None` takes the page's own heading, "" its name in the registry.
LAYOUT: tuple[tuple[str, tuple[tuple[str | None, str], ...]], ...] = (
    (
        "Start",
        (
            ("asrnorm", "README.md"),
            ("Quick start", "quickstart.md"),
            ("The demo", "demo.md"),
            ("Concepts", "concepts.md"),
            ("The command line", "command-line.md"),
            ("Results", "results.md"),
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
    ("Norms", (("Overview", "norms/index.md"), ("Conversion", "conversion.md"), ("", "norms/*.md"))),
    ("Methods", (("Overview", "methods/index.md"), ("Backbones", "models.md"), ("", "methods/*.md"))),
    (
        "Data",
        (
            ("Overview", "data/index.md"),
            ("", "data/digits.md"),
            ("", "data/cifar10c.md"),
            ("", "data/pacs.md"),
            ("", "data/folder.md"),
            ("", "data/digits_mini.md"),
            ("Fetching and checking", "data/fetch.md"),
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
            ("Evaluation", "evaluation/metrics.md"),
            ("Attacks", "evaluation/adversarial.md"),
            ("Selection by shifted images", "evaluation/shifted-val.md"),
            (None, "evaluation/*.md"),
            ("Reproduce", "reproduce.md"),
            ("Reports", "reports.md"),
            ("Audit", "audit.md"),
            ("Export", "export.md"),
            ("Hugging Face Hub", "hub.md"),
            ("Lightning, Accelerate, ...", "frameworks.md"),
            ("Speed", "speed.md"),
        ),
    ),
    (
        "Studies",
        (  # as `asrnorm list studies` has them
            ("Overview", "studies/index.md"),
            ("Overview", "studies.md"),
            ("", "studies/table?.md"),
            ("", "studies/table??.md"),
            ("", "studies/fig-*.md"),
            ("", "studies/*.md"),
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


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Set the menu once all pages are known, those of the other hooks among them."""
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = build_menu(pages)
    return files


on_files.mkdocs_priority = -100  # type: ignore[attr-defined]


def build_menu(pages: list[str]) -> list[Any]:
    """Return the menu of these pages, each of them once."""
    left = dict.fromkeys(pages)
    menu: list[Any] = []
    for section, patterns in LAYOUT:
        entries: list[Any] = []
        for title, pattern in patterns:
            for page in [page for page in left if _matches(page, pattern)]:
                del left[page]
                entries.append(page if title is None else {title or PurePosixPath(page).stem: page})
        if entries:
            menu.append({section: entries})
    return menu


def _matches(page: str, pattern: str) -> bool:
    if pattern == "**/*.md":
        return True
    return PurePosixPath(page).match(pattern) and page.count("/") == pattern.count("/")


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Give the tables of studies and of results the room of the contents beside them."""
    if page.file.src_uri.startswith(("studies/", "results.")):
        page.meta.setdefault("hide", ["toc"])
    return markdown
