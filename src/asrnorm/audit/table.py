"""Tables of an audit: one row a model and measurement, shaded by what was lost."""

import html
from collections.abc import Sequence

from asrnorm.audit.result import GROUPS, Audit, ModelAudit

_MOST_SHADE = 0.55


def corruption_table(audit: Audit) -> str:
    """Return the accuracy under each corruption and severity, by kind, shaded by the loss against clean images."""
    several = len(audit.models) > 1
    columns = [
        "corruption",
        *(["model"] if several else []),
        "clean",
        *(f"{level}" for level in audit.severities),
        "mean",
    ]
    head = "".join(f"<th{' class=who' if column == 'model' else ''}>{column}</th>" for column in columns)
    lines = [f"<tr>{head}</tr>"]
    for group, names in GROUPS.items():
        present = [name for name in names if any(name in model.corruptions for model in audit.models)]
        absent = [name for name in names if name in audit.not_available]
        if not present and not absent:
            continue
        lines.append(f'<tr class="group"><th colspan="{len(columns)}">{group}</th></tr>')
        for name in present:
            lines += _rows(name, audit, [_levels(model, name, audit) for model in audit.models])
        if several or len(present) > 1:
            lines += _rows(f"all {group}", audit, [_group(model, present, audit) for model in audit.models], "sum")
        for name in absent:
            lines.append(
                f'<tr><td>{_plain(name)}</td><td class="absent" colspan="{len(columns) - 1}">not available</td></tr>'
            )
    lines += _rows("all corruptions", audit, [_group(model, None, audit) for model in audit.models], "sum")
    return wrap(lines)


def number_table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table of ready-made text, names on the left.

    Example:
        >>> "<td>93.0</td>" in number_table(["clean"], [("a", ["93.0"])])
        True
    """
    lines = ["<tr><th></th>" + "".join(f"<th>{html.escape(column)}</th>" for column in columns) + "</tr>"]
    for name, values in rows:
        cells = "".join(f"<td>{html.escape(value)}</td>" for value in values)
        lines.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    return wrap(lines)


def wrap(lines: Sequence[str]) -> str:
    """Return rows as a table that scrolls by itself on a narrow screen."""
    return '<div class="scroll"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _levels(model: ModelAudit, name: str, audit: Audit) -> list[float | None]:
    scores = model.corruptions.get(name, {})
    return [scores[level].accuracy if level in scores else None for level in audit.severities]


def _group(model: ModelAudit, names: Sequence[str] | None, audit: Audit) -> list[float | None]:
    scores = [model.under(level, names) for level in audit.severities]
    return [scores.accuracy if scores else None for scores in scores]


def _rows(name: str, audit: Audit, values: Sequence[Sequence[float | None]], kind: str = "") -> list[str]:
    several = len(audit.models) > 1
    lines = []
    for index, (model, row) in enumerate(zip(audit.models, values, strict=True)):
        present = [value for value in row if value is not None]
        mean = sum(present) / len(present) if present else None
        cells = "".join(_cell(value, model.clean.accuracy) for value in [*row, mean])
        title = f"<td{f' rowspan={len(values)}' if several else ''}>{_plain(name)}</td>" if index == 0 else ""
        who = f'<td class="who"><i class="key c{index}"></i>{html.escape(model.name)}</td>' if several else ""
        start = f'<tr class="{kind}">' if kind else "<tr>"
        lines.append(f"{start}{title}{who}<td>{100 * model.clean.accuracy:.1f}</td>{cells}</tr>")
    return lines


def _cell(value: float | None, clean: float) -> str:
    if value is None:
        return "<td>&ndash;</td>"
    lost = max(0.0, clean - value) / max(clean, 1e-9)
    return f'<td style="background: rgb(213 94 0 / {_MOST_SHADE * lost:.2f})">{100 * value:.1f}</td>'


def _plain(name: str) -> str:
    return html.escape(name.replace("_", " "))
