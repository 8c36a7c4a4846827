"""SIGTERM, which Slurm, systemd and a launch send, as Ctrl-C: what was begun is left in order.

Training does more, in `training/interruption.py`: it writes a checkpoint first.

Options that are given twice where one value counts: the last would be taken in silence.

`asrnorm VERB`: the application, its error lines and its exit status.

Exit status 0: done. 1: the work failed. 2: the call was wrong. An error is one line; `--debug` shows the traceback.
"""

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
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
from asrnorm.cli.predict import predict
from asrnorm.cli.report import report
from asrnorm.cli.reproduce import reproduce
from asrnorm.cli.train import train
from asrnorm.core.errors import AsrnormError, UnknownNameError, WrongCallError, first_line, printable


@contextmanager
def terminating_in_order() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM within the block, and let the GPU finish what it was given before it ends.

    A process that dies outright leaves temporary files, and under MPS can take down others that share its GPU.

    Example:
        >>> with terminating_in_order():
        ...     signal.getsignal(signal.SIGTERM) is _interrupt
        True
    """
    is_ours = threading.current_thread() is threading.main_thread() and _is_default()
    if is_ours:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        _await_gpu()
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_default() -> bool:
    return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _await_gpu() -> None:
    torch = sys.modules.get("torch")  # where it was not needed, it is not imported for this
    if torch is not None and torch.cuda.is_initialized():
        with suppress(RuntimeError):  # a GPU that has failed has nothing left to finish
            torch.cuda.synchronize()


def find_repeated(app: Any, words: Sequence[str]) -> str | None:
    """Return the first option of a command line that is given again and takes one value; `None` where there is none.

    Args:
        app: the application that the words are for; of its commands, the one that they name is looked at.
        words: as typed, without the program.

    Example:
        >>> app = typer.Typer()
        >>> @app.command()
        ... def look(seed: int = 0, names: list[str] = []) -> None: ...
        >>> find_repeated(app, ["--seed", "1", "--names", "a", "--names", "b", "--seed=2"])
        '--seed'
    """
    command: Any = typer.main.get_command(app) if isinstance(app, typer.Typer) else None
    rest = list(words)
    while commands := getattr(command, "commands", None):
        name = next((word for word in rest if not word.startswith("-")), None)
        if name is None or name not in commands:
            return None
        rest, command = rest[rest.index(name) + 1 :], commands[name]
    return _find(_options(command), rest) if command is not None else None


def _options(command: Any) -> Mapping[str, Any]:
    options = (parameter for parameter in command.params if parameter.param_type_name == "option")
    return {word: option for option in options for word in (*option.opts, *option.secondary_opts)}


def _find(options: Mapping[str, Any], words: Sequence[str]) -> str | None:
    seen: set[str] = set()
    values_left = 0
    for word in words:
        if values_left:
            values_left -= 1
            continue
        if word == "--":
            return None
        name, equals, _ = word.partition("=")
        option = options.get(name)
        if option is None or option.is_flag:
            continue
        values_left = 0 if equals else option.nargs
        if option.name in seen and not option.multiple:
            return str(option.opts[0])
        seen.add(option.name)
    return None


OK, FAILED, WRONG_CALL = 0, 1, 2
_INTERRUPTED = 130  # what typer makes of Ctrl-C
_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")  # as gloo and NCCL say it

_HELP = """ASR-Norm and single domain generalization: train on one domain, hold up on others.

Example: `asrnorm demo`, then `asrnorm train folder.rsda_asr --set suite.root=photos --source day` for your own images.
`asrnorm COMMAND --help` has more.
"""

app = typer.Typer(
    name="asrnorm",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)
app.command("train")(train)
app.command("evaluate")(evaluate)
app.command("predict")(predict)
app.command("report")(report)
app.command("reproduce")(reproduce)
app.command("export")(export)
app.command("audit")(audit)
app.command("list")(list_registry)
app.command("doctor")(doctor)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")

# typer carries its own copy of click in some releases, so its exceptions are found by what typer exports.
_ANCESTORS: dict[str, type[Exception]] = {c.__name__: c for c in typer.BadParameter.__mro__}
_UsageError, _ClickException = _ANCESTORS["UsageError"], _ANCESTORS["ClickException"]


@app.callback(invoke_without_command=True)
def common(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),  # noqa: ARG001
) -> None:
    """ASR-Norm and single domain generalization: train on one domain, hold up on others."""
    if version:
        typer.echo(f"asrnorm {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    `--debug` is accepted anywhere, since one adds it to the end of a line that has just failed.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may have letters that a terminal has not
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [_expand_home(word) for word in words if word != "--debug"]
    try:
        Path.cwd()  # torch ends the process where the folder is gone
    except FileNotFoundError:
        return _say("the current folder has been removed; change to another", FAILED)
    if "--help" not in words and (repeated := find_repeated(app, words)):
        return _say(f"{repeated} is given more than once, and takes one value", WRONG_CALL)
    try:
        with terminating_in_order():
            status = app(args=words, prog_name="asrnorm", standalone_mode=False)
    except (_ClickException, AsrnormError, OSError, KeyboardInterrupt, typer.Abort) as error:
        if debug:
            traceback.print_exc()
        return _report(error)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _say(_explain_unforeseen(error), FAILED)
    if status == _INTERRUPTED:
        return _say("interrupted", FAILED)
    return status if isinstance(status, int) else OK


def _expand_home(word: str) -> str:
    """Return `--out=~/runs` with the home in it, which a shell puts in only where `~` begins a word."""
    option, equals, value = word.partition("=")
    meant = equals and option.startswith("--") and value.startswith("~/")
    return f"{option}={Path(value).expanduser()}" if meant else word


def _report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _say("interrupted", FAILED)
    if isinstance(error, _ClickException):
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # no command was given: typer has shown the help
            return WRONG_CALL
        context = getattr(error, "ctx", None)  # of the command that was called wrongly, where it got that far
        command = context.command_path if context else "asrnorm"
        hint = f"; see {command} --help" if isinstance(error, _UsageError) else ""
        return _say(message.rstrip(".") + hint, WRONG_CALL)
    return _say(str(error), WRONG_CALL if isinstance(error, UnknownNameError | WrongCallError) else FAILED)


def _explain_unforeseen(error: Exception) -> str:
    kind = type(error).__name__
    # torch has an error of its own for a GPU's memory, and plain words for a machine's; it is not imported here.
    if kind in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error):
        return f"{kind}: the memory of this machine or of its GPU did not suffice"
    if os.environ.get("RANK", "0") != "0" and any(words in str(error) for words in _GONE):
        return "another process of this run ended before this one; what it said is the reason"
    if "Could not determine home directory" in str(error):
        return "a path begins with ~ and a name that no user here has, or HOME is not set: write the path out"
    said = f" ({first_line(error)})" if str(error) else ""
    return f"{kind}{said}: a bug in asrnorm, or in a file of your own that it ran; --debug shows where, for a report"


def _say(message: str, status: int) -> int:
    typer.echo("asrnorm: " + printable(" ".join(message.split())), err=True)
    return status
