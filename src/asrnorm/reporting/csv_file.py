"""A study as CSV: one line per cell, numbers in full."""

import csv
import io
from collections.abc import Iterable

from asrnorm.reporting.sheet import Sheet, SheetCell

COLUMNS = (
    *("study", "scale", "group", "row", "column", "state", "ours", "ours_deviation", "n", "seeds", "values"),
    *("paper", "paper_deviation", "difference", "p", "p_against", "copied_from", "note", "commits", "configs"),
)
_NUMBERS = ("seeds", "values", "p")  # several numbers in one text
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def to_csv(sheet: Sheet) -> str:
    """Return one line per cell; a field without a value is empty, several p-values are in the order of `p_against`."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in sheet.rows:
        for cell in sheet.in_row(row):
            fields = {"study": sheet.collected.study.name, "scale": sheet.collected.scale, **_fields(cell)}
            writer.writerow({name: value if name in _NUMBERS else _guard(value) for name, value in fields.items()})
    return buffer.getvalue()


def _fields(cell: SheetCell) -> dict[str, object]:
    measured, printed = cell.measured, cell.printed
    fields: dict[str, object] = {
        "group": cell.row.group,
        "row": cell.row.label,
        "column": cell.column,
        "state": cell.state,
        "difference": cell.gap,
        "p": ";".join(str(test.result.pooled) for test in cell.p_tests),
        "p_against": ";".join(test.result.against for test in cell.p_tests),
    }
    if measured is not None:
        fields |= {
            "ours": measured.mean,
            "ours_deviation": measured.deviation,
            "n": measured.n,
            "seeds": _join(measured.seeds),
            "values": _join(measured.values),
            "commits": _join(dict.fromkeys(record.result.commit for record in measured.records)),
            "configs": _join(dict.fromkeys(record.result.config_hash for record in measured.records)),
        }
    if printed is not None:
        fields |= {"paper": printed.value, "paper_deviation": printed.deviation}
        fields |= {"copied_from": printed.copied_from, "note": printed.note}
    return fields


def _join(values: Iterable[object]) -> str:
    return " ".join(map(str, values))


def _guard(value: object) -> object:
    """Put an apostrophe before text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
