"""HTML pages from templates: self-contained files in which every value is escaped."""

import base64
import hashlib
import html
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from asrnorm.core.files import write_whole

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, **values: object) -> str:
    """Return the HTML of a template in `templates/`; values are escaped unless the template says `| safe`.

    Args:
        template: name of the file; one that extends `base.html` needs `title` and `footer` among the values.
        **values: what the template names; a name that is missing is an error.

    Example:
        >>> "<title>a &lt; b</title>" in render_page("base.html", title="a < b", footer="")
        True
    """
    text: str = _environment().get_template(template).render(values)
    return text


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "data_uri": _data_uri}
    environment.globals |= {"script_text": _read_script, "script_sources": _name_scripts}
    return environment


def _percent(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{100 * value:.1f}"


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _read_script(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _name_scripts(names: Sequence[str]) -> str:
    """Return a Content-Security-Policy source list by which these scripts run and no other, whatever the page holds."""
    digests = (hashlib.sha256(_read_script(name).encode()).digest() for name in names)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"


def write_page(
    path: Path, title: str, parts: Sequence[str], footer: str, *, style: str = "", scripts: Sequence[str] = ()
) -> None:
    """Write a page of ready-made HTML under its name only when it is whole.

    Args:
        path: of the HTML file.
        title: heading and window title.
        parts: HTML of the body, as the functions here return it.
        footer: plain text: where the numbers come from.
        style: further CSS.
        scripts: names of files in `templates/` that run when the body is there; a page reads without them too.
    """
    page = render_page("parts.html", title=title, parts=parts, footer=footer, style=style, scripts=scripts)
    write_whole(path, page)


def heading(text: str) -> str:
    """Return a section heading.

    Example:
        >>> heading("a < b")
        '<h2>a &lt; b</h2>'
    """
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str, note: bool = False) -> str:
    """Return a paragraph of plain text, small and faint where it is a note."""
    return f"<p{' class=note' if note else ''}>{html.escape(text)}</p>"


def figure(svg: str, description: str) -> str:
    """Return an SVG picture with a description for those who cannot see it."""
    return f'<figure class="scroll" role="img" aria-label="{html.escape(description)}">{svg}</figure>'


def picture(png: bytes, description: str) -> str:
    """Return a PNG inside the page."""
    data = base64.b64encode(png).decode()
    return f'<figure class="scroll"><img src="data:image/png;base64,{data}" alt="{html.escape(description)}"></figure>'


def percent_table(
    columns: Sequence[str], rows: Sequence[tuple[str, Sequence[float | None]]], mark_best: bool = True
) -> str:
    """Return a table of fractions in percent, the best of each column marked; what is absent shows as a dash.

    Example:
        >>> 'class="best">75.0' in percent_table(["a"], [("x", [0.5]), ("y", [0.75])])
        True
    """
    present = [
        [value for value in column if value is not None] for column in zip(*(row[1] for row in rows), strict=True)
    ]
    best = [max(values, default=None) for values in present]
    lines = ["<tr><th></th>" + "".join(f"<th>{html.escape(column)}</th>" for column in columns) + "</tr>"]
    for name, values in rows:
        cells = []
        for value, top in zip(values, best, strict=True):
            shown = "&ndash;" if value is None else f"{100 * value:.1f}"
            marked = mark_best and value is not None and value == top and len(rows) > 1
            cells.append(f'<td class="best">{shown}</td>' if marked else f"<td>{shown}</td>")
        lines.append(f"<tr><td>{html.escape(name)}</td>{''.join(cells)}</tr>")
    return '<div class="scroll"><table>\n' + "\n".join(lines) + "\n</table></div>"
