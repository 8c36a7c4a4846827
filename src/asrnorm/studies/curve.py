"""The log of a run: `log.jsonl` as training leaves it, or `curves.csv`, the few kilobytes of it that are kept."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from asrnorm.core.results import read_log_rows

LOG_FILE = "log.jsonl"
CURVES_FILE = "curves.csv"
MOST_ROWS = 60  # as many as a curve of a figure needs, and a run keeps a few kilobytes
_NUMBERS = ("loss", "accuracy")


def read_log(folder: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a run's log, or what is kept of it; none where there is neither.

    A line that a kill cut short ends the log.
    """
    if folder is None:
        return []
    if (folder / LOG_FILE).is_file():
        return read_log_rows(folder / LOG_FILE)
    if (folder / CURVES_FILE).is_file():
        return list(parse_curves((folder / CURVES_FILE).read_text(encoding="utf-8", errors="replace")))
    return []


def format_curves(rows: Sequence[dict[str, Any]]) -> str:
    """Return loss, accuracy and lambdas of a log as CSV of four digits, at most `MOST_ROWS` rows of each.

    Example:
        >>> rows = [{"step": 1, "loss": 0.123456, "lr": 0.1, "lambdas": {"stem.norm": {"lambda_mu": 0.047426}}}]
        >>> format_curves(rows).splitlines()
        ['step,loss,accuracy,stem.norm/lambda_mu', '1,0.1235,,0.04743']
    """
    chosen: dict[int, dict[str, Any]] = {}
    for some in ([row for row in rows if row.get("lambdas")], [row for row in rows if "loss" in row]):
        chosen |= {row["step"]: row for row in _spread(some)}
    lines = [chosen[step] for step in sorted(chosen)]
    places = list(dict.fromkeys(place for row in lines for place in _lambdas(row)))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["step", *_NUMBERS, *(f"{layer}/{name}" for layer, name in places)])
    for row in lines:
        found = _lambdas(row)
        values = [*(row.get(name) for name in _NUMBERS), *(found.get(place) for place in places)]
        writer.writerow([row["step"], *("" if value is None else f"{value:.4g}" for value in values)])
    return buffer.getvalue()


def parse_curves(text: str) -> Iterator[dict[str, Any]]:
    r"""Yield the rows of a log that `format_curves` wrote; one that is not whole ends it.

    Example:
        >>> list(parse_curves("step,loss,accuracy,norm/lambda_mu\n5,0.5,,0.047\n"))
        [{'step': 5, 'loss': 0.5, 'lambdas': {'norm': {'lambda_mu': 0.047}}}]
    """
    lines = csv.reader(io.StringIO(text))
    heads = next(lines, [])
    for words in lines:
        if len(words) != len(heads) or not words[0].isdecimal():
            return
        row: dict[str, Any] = {"step": int(words[0])}
        for head, word in zip(heads[1:], words[1:], strict=True):
            if not word:
                continue
            try:
                value = float(word)
            except ValueError:
                return
            layer, slash, name = head.rpartition("/")
            if slash:
                row.setdefault("lambdas", {}).setdefault(layer, {})[name] = value
            else:
                row[head] = value
        yield row


def _spread(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first, the last, and so many between at even distances."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]


def _lambdas(row: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(layer, name): value for layer, values in row.get("lambdas", {}).items() for name, value in values.items()}
