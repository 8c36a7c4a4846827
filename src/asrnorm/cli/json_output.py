"""`--json FILE`: numbers for programs, in a file or on the standard output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from asrnorm.cli.run_folder import check_place
from asrnorm.storage import write_whole

_STANDARD_OUTPUT = Path("-")


@contextmanager
def json_output(file: Path | None) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text where `--json` says: to no place, to a file, or to the standard output.

    With `-`, what is printed meanwhile goes to the error output, and the last text written is printed at the end, also
    of work that fails then: `asrnorm ... --json - | jq` sees the numbers alone.

    Args:
        file: as typed; `None` where the option is not given.

    Raises:
        InputError: a folder.
        StorageError: a place where nothing can be written.
    """
    if file is None:
        yield lambda _text: None
        return
    if file != _STANDARD_OUTPUT:
        check_place(file)
        yield lambda text: write_whole(file, text)
        return
    texts: list[str] = []
    try:
        with redirect_stdout(sys.stderr):
            yield texts.append
    finally:
        if texts:
            sys.stdout.write(texts[-1].rstrip("\n") + "\n")
