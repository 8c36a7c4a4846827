"""How far a long generation is: a bar on a terminal, plain lines elsewhere."""

from types import TracebackType

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text


class _Rate(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


class ImageProgress:
    """Counts images done on standard error; a context manager.

    Args:
        total: how many images there are to do.
        shown: false says nothing at all.
        console: where to write; standard error by default.
    """

    def __init__(self, total: int, *, shown: bool = True, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, quiet=not shown, highlight=False)
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description:<18}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            _Rate(),
            rich_progress.TimeRemainingColumn(),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> "ImageProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, name: str) -> None:
        """Name what is being worked on."""
        self._bar.update(self._task, description=name)

    def advance(self, count: int) -> None:
        """Count images that are done."""
        self._bar.update(self._task, advance=count)

    def say(self, line: str) -> None:
        """Write one line, above the bar where there is one."""
        self._console.print(line, markup=False, soft_wrap=True)
