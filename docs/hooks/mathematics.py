"""Formulas as MathML, made while the site is built: browsers draw it themselves, without a script or a font to load."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Replace what the Markdown extension has marked as a formula."""
    return _FORMULA.sub(_draw, content)


def _draw(match: re.Match[str]) -> str:
    element, opening, latex = match.groups()
    markup = convert(html.unescape(latex).strip(), display="block" if opening == "[" else "inline")
    return f'<{element} class="formula">{markup}</{element}>'
