"""How far a download is: a bar with rate and time left on a terminal, a few plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asrnorm.data.fetch.download import Progress

STEP = 10  # percent between plain lines


@contextmanager
def show_progress(label: str) -> Iterator[Progress]:
    """Give a function to be told `(done, total)` in bytes; what it is told appears on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"fetching {label}", highlight=False, markup=False)
        yield _plain_lines(console, label)
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _plain_lines(console: Any, label: str) -> Progress:
    next_percent = STEP

    def report(done: int, total: int | None) -> None:
        nonlocal next_percent
        percent = 100 * done // total if total else 0
        if total and percent >= next_percent:
            console.print(
                f"{label}: {done / 1e6:.1f} of {total / 1e6:.1f} MB ({percent} %)", highlight=False, markup=False
            )
            next_percent = percent - percent % STEP + STEP

    return report
