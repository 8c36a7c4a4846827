"""`asrnorm COMMAND`: the application, its error messages and its exit status.

Exit status 0: done. 1: the command failed. 2: the call was wrong. An error is one line; `--debug` adds the traceback.
"""

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from asrnorm import __version__
from asrnorm.cli.audit import audit
from asrnorm.cli.bench import bench_app
from asrnorm.cli.data import data_app
from asrnorm.cli.demo import demo
from asrnorm.cli.doctor import doctor
from asrnorm.cli.evaluate import evaluate
from asrnorm.cli.export import export
from asrnorm.cli.listing import list_registry
from asrnorm.cli.options import print_error
from asrnorm.cli.predict import predict
from asrnorm.cli.report import report
from asrnorm.cli.reproduce import reproduce
from asrnorm.cli.train import train
from asrnorm.core.errors import AsrnormError, UnknownNameError, WrongCallError, first_line

OK, FAILED, WRONG_CALL = 0, 1, 2
_INTERRUPTED = 130  # typer's status for Ctrl-C
_TOO_LARGE = ("can't allocate memory", "Storage size calculation overflowed")
# Messages of gloo and NCCL when another process is gone.
_DISCONNECTED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "connectFullMesh failed")

_FOLDERS = ("DATA", "OUT", "RUNS")  # options that take one
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="asrnorm",
    no_args_is_help=True,
    context_settings=_SETTINGS,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (demo, train, evaluate, predict, report, reproduce, export, audit):
    app.command(command.__name__)(command)
app.command("list")(list_registry)
app.command("doctor")(doctor)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")

# Some releases of typer contain their own copy of click, so the exceptions are looked up in what typer exports.
_ANCESTORS: dict[str, type[Exception]] = {c.__name__: c for c in typer.BadParameter.__mro__}
_UsageError, _ClickException = _ANCESTORS["UsageError"], _ANCESTORS["ClickException"]


@app.callback(invoke_without_command=True)
def common(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),  # noqa: ARG001
) -> None:
    """ASR-Norm and single domain generalization: train on one domain, hold up on others.

    Example: `asrnorm demo`, then `asrnorm train folder.best --data photos --source day` for your own images.
    `asrnorm COMMAND --help` has more.
    """
    if version:
        typer.echo(f"asrnorm {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    `--debug` may stand anywhere, because users append it to a command that has just failed.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may have characters that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        words = [_expand_home(word) for word in words if word != "--debug"]
        try:
            Path.cwd()  # torch aborts the process if the folder is gone
        except FileNotFoundError:
            return _fail("the current folder has been removed; change to another")
        command: Any = typer.main.get_command(app)
        if not words or not set(_SETTINGS["help_option_names"]).isdisjoint(words):
            _simplify_help(command)
        elif repeated := find_repeated(command, words):
            return _fail(f"{repeated} is given more than once, and takes one value", WRONG_CALL)
        with sigterm_as_interrupt():
            status = command.main(args=words, prog_name="asrnorm", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        return _report(error)
    if status == _INTERRUPTED:
        return _fail("interrupted")
    return status if isinstance(status, int) else OK


def _expand_home(word: str) -> str:
    """Expand `~/` in `--out=~/runs`; a shell does so only at the beginning of a word."""
    option, equals, value = word.partition("=")
    expands = equals and option.startswith("--") and value.startswith("~/")
    return f"{option}={Path(value).expanduser()}" if expands else word


def _simplify_help(command: Any) -> None:
    """Name values in the help as `argparse` does, `--seed SEED`, instead of by types such as <int range> and <bool>."""
    from typer import rich_utils

    rich_utils.RANGE_STRING = ""  # [x>=0]; the error says it
    for option in (*command.params, command.get_help_option(command.context_class(command, **_SETTINGS))):
        if option.param_type_name == "argument":
            option.display_type_rich = lambda ctx: None  # noqa: ARG005
        if option.metavar is None:
            name = option.opts[0].strip("-").upper()
            option.metavar = "" if getattr(option, "is_flag", False) else "DIR" if name in _FOLDERS else name
    for each in getattr(command, "commands", {}).values():
        _simplify_help(each)


def find_repeated(command: Any, words: Sequence[str]) -> str | None:
    """Return the first option of a command line that takes one value and is given twice, else `None`.

    typer would silently take the last value.
    """
    rest = list(words)
    while commands := getattr(command, "commands", None):
        name = next((word for word in rest if not word.startswith("-")), None)
        if name is None or name not in commands:
            return None
        rest, command = rest[rest.index(name) + 1 :], commands[name]
    with suppress(_UsageError):  # the command itself reports it
        _, _, given = command.make_parser(command.context_class(command)).parse_args(rest)
        for position, option in enumerate(given):
            if option in given[:position] and not option.multiple and not option.is_flag:
                return str(option.opts[0])
    return None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM in the block, and wait for the GPU at its end.

    Slurm, systemd and launches send SIGTERM. A process that it kills at once leaves temporary files and can, under MPS,
    take down others on the same GPU. Training additionally saves a checkpoint, see `training/log.py`.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    installs = in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if installs:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        torch = sys.modules.get("torch")  # not imported for this
        if torch is not None and torch.cuda.is_initialized():
            with suppress(RuntimeError):  # the GPU has failed
                torch.cuda.synchronize()
        if installs:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _report(error: BaseException) -> int:
    """Print an error as one line and return the exit status."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _fail("interrupted")
    if isinstance(error, _ClickException):
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # no command: typer has shown the help
            return WRONG_CALL
        if "'--json' requires an argument" in message:
            message = "--json takes the path of a file, or - to print"
        context = getattr(error, "ctx", None)  # of the command, if typer got that far
        command = context.command_path if context else "asrnorm"
        hint = f"; see {command} --help" if isinstance(error, _UsageError) else ""
        return _fail(message.rstrip(".") + hint, WRONG_CALL)
    if isinstance(error, AsrnormError | OSError):
        return _fail(str(error), WRONG_CALL if isinstance(error, UnknownNameError | WrongCallError) else FAILED)
    return _fail(_explain_unexpected(error))


def _explain_unexpected(error: BaseException) -> str:
    kind = type(error).__name__
    # torch raises its own error for GPU memory and a RuntimeError for host memory, or for sizes beyond any.
    if kind in ("MemoryError", "OutOfMemoryError") or any(words in str(error) for words in _TOO_LARGE):
        return f"{kind}: this machine or its GPU has not enough memory; a smaller network or batch needs less"
    if os.environ.get("WORLD_SIZE", "1") != "1" and any(words in str(error) for words in _DISCONNECTED):
        return "another process of this run ended before this one; its message is the reason"
    if "CUDA error" in str(error):
        return f"the GPU failed ({first_line(error)}); the same command resumes a run from its last checkpoint"
    if "Could not determine home directory" in str(error):
        return "a path begins with ~ and the name of no user, or HOME is not set: write out the path"
    said = f" ({first_line(error)})" if str(error) else ""
    return f"{kind}{said}: a bug in asrnorm, or in a file of your own that it ran; --debug shows where, for a report"


def _fail(message: str, status: int = FAILED) -> int:
    print_error(message)
    return status
