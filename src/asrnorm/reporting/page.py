"""HTML pages from templates: self-contained files in which every value is escaped."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from asrnorm.core.errors import count_of

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, **values: object) -> str:
    """Return the HTML of a template in `templates/`; values are escaped unless the template says `| safe`.

    A name that the template lacks is an error; one that extends `base.html` needs `title` and `footer`.
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
    environment.filters |= {
        "percent": lambda value: "\N{EN DASH}" if value is None else f"{100 * value:.1f}",
        "data_uri": lambda png: f"data:image/png;base64,{base64.b64encode(png).decode()}",
        "count_of": count_of,
        "breakable": _breakable,
    }
    environment.globals |= {"script_text": _read_script, "script_sources": _name_scripts}
    return environment


def _breakable(name: str) -> Any:
    """Return a name that may be broken after its dots, dashes and underscores where a column is narrow."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[._/-])(?=\w)", "<wbr>", str(escape(name))))


def _read_script(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _name_scripts(names: Sequence[str]) -> str:
    """Return a Content-Security-Policy source list by which these scripts run and no other, whatever the page holds."""
    digests = (hashlib.sha256(_read_script(name).encode()).digest() for name in names)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"
