"""Pages of the source tree that lie outside docs/, and links that leave it.

ARCHITECTURE.md and its like become pages of the site. A link to any other file of the tree keeps its text and loses its
target: the site is read where there is no source tree beside it.
"""

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# File of the tree to page of the site.
PAGES = {f"{name.upper()}.md": f"{name}.md" for name in ("architecture", "changelog", "contributing", "security")}
_SITE = {**PAGES, "README.md": "README.md"}
_HOME = {page: file for file, page in PAGES.items()}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that lie outside."""
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(root / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Point links from and to those pages to where they are on the site."""
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [rewrite(markdown[end : fence.start()], page.file.src_uri), fence.group()]
        end = fence.end()
    return "".join([*parts, rewrite(markdown[end:], page.file.src_uri)])


def rewrite(text: str, page: str) -> str:
    """Return text of a page with the links that leave docs/ made right."""
    home = _HOME.get(page, f"docs/{page}")

    def point(match: re.Match[str]) -> str:
        label, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if path.startswith("docs/") and home.startswith("docs/"):
            return match.group()
        uri = path.removeprefix("docs/") if path.startswith("docs/") else _SITE.get(path)
        if uri is None:
            return label
        return f"[{label}]({posixpath.relpath(uri, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(point, text)
