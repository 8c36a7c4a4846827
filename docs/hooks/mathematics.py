"""Formulas as MathML, made while the site is built: browsers draw it themselves, without a script or a font to load."""

import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>([,.;:)]*)', re.DOTALL)

# What the translator does not know, or knows and sets badly.
_BEFORE = ((r"\\arg\b", r"\\mathrm{arg}\\,"), (r"\\log\s+(?=[a-zA-Z\\])", r"\\log\\,"))
_BEFORE_BLOCK = ((r"\\(max|min)_", r"\\\1\\limits_"),)
_AFTER = (
    (r">\\([{}])<", r">\1<"),
    (r"\\_", "_"),
    (r"<mo minsize", r'<mo lspace="0" rspace="0" minsize'),
    (r"<mo>(&#x0007C;|&#x02016;)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
)


def on_page_content(content: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Replace what the Markdown extension has marked as a formula."""
    return _FORMULA.sub(_draw, content)


def _draw(match: re.Match[str]) -> str:
    element, opening, latex, stop = match.groups()
    markup = translate(html.unescape(latex).strip(), is_block=opening == "[")
    # With the stop inside, a line is not broken before it.
    return f'<{element} class="formula">{markup}{stop}</{element}>'


def translate(latex: str, *, is_block: bool) -> str:
    """Return a formula as MathML.

    Raises:
        PluginError: a command that the translator does not know, and would print as it stands.
    """
    from latex2mathml.converter import convert
    from mkdocs.exceptions import PluginError

    for pattern, replacement in _BEFORE + (_BEFORE_BLOCK if is_block else ()):
        latex = re.sub(pattern, replacement, latex)
    markup = convert(latex, display="block" if is_block else "inline")
    for pattern, replacement in _AFTER:
        markup = re.sub(pattern, replacement, markup)
    if "\\" in markup:
        raise PluginError(f"no MathML for a command in the formula {latex}")
    return markup
