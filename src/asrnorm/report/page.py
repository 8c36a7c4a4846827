"""One self-contained HTML page: no request to any other host, light and dark, wide and narrow."""

import base64
import hashlib
import html
from collections.abc import Sequence
from pathlib import Path

from asrnorm.core.files import write_whole

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1b1b; --paper: #ffffff; --faint: #5f5f5f; --line: #d9d9d9; --mark: #e3eef7; --link: #005a8f;
  --blue: #0072b2; --warn: #fff4d6; --warn-line: #b7791f; --gap: #f3f3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #161616; --faint: #a8a8a8; --line: #3a3a3a; --mark: #1d3342; --link: #7cc4f0;
    --blue: #3d9ad6; --warn: #3a2e12; --warn-line: #d9a441; --gap: #222222; }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
p, ul, ol { max-width: 60rem; }
a { color: var(--link); }
.note, footer { color: var(--faint); font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.best { background: var(--mark); font-weight: 600; }
figure { margin: 1rem 0; } svg, img { max-width: 100%; height: auto; } img { border-radius: 4px; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
"""
# Nothing can be fetched from anywhere, whatever the page holds. Figures have style attributes.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_page(path: Path, title: str, parts: Sequence[str], footer: str, *, style: str = "", script: str = "") -> None:
    """Write a page under its name only when it is whole.

    Args:
        path: of the HTML file.
        title: heading and window title.
        parts: HTML of the body, as the functions here return it.
        footer: plain text: where the numbers come from.
        style: further CSS.
        script: JavaScript, run when the body is there; a page reads without it too.
    """
    policy = f"{_POLICY}; script-src {_source(script)}"
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n"
        + "\n".join(parts)
        + f"\n<footer>{html.escape(footer)}</footer>\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body></html>\n"
    )
    write_whole(path, text)


def _source(script: str) -> str:
    """Name the one script that may run, so that no other does, whatever markup the page holds."""
    if not script:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


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
