"""Kinds of `helpers.fuzz` that call the command line and the public functions with hostile arguments."""

import contextlib
import io
import os
from pathlib import Path

from helpers.fuzz_files import FIELDS, TEXTS
from helpers.fuzz_kind import kind

NOTHING = "no/such/run"
CALLS = (
    *([word, NOTHING] for word in ("train", "evaluate", "predict", "report", "reproduce", "export", "audit", "list")),
    *(["data", "fetch", "no-such-set"], ["bench", "no-such-bench"], ["doctor", "--help"], ["no-such-command"], []),
)
OPTIONS = ("--set", "--scale", "--seed", "--out", "--config", "--source", "--target", "--json", "--as", "--classes")
OPTIONS += ("--format", "--seeds", "--suite", "--data", "--steps", "--batch", "--size", "--x", "-", "--")


@kind(10)
def command_line(folder, draw, state):
    """Calls that cannot start any work: what they name does not exist, or they are dry runs."""
    from asrnorm.cli.main import main

    before = Path.cwd()
    os.chdir(folder)
    try:
        if draw.random() < 0.5:
            words = ["train", "digits.erm_bn", "--scale", "smoke", "--dry-run"]
            for _ in range(draw.choice((1, 2))):
                words += ["--set", f"{draw.choice(FIELDS)}={draw.choice(TEXTS)}"]
        else:
            words = [*draw.choice(CALLS), *draw.choices((*OPTIONS, *TEXTS), k=draw.randrange(5))]
        words = [word.replace("\0", "") for word in words]
        status, said = call(main, words)
        assert status in (0, 1, 2), words
        assert "Traceback" not in said, said
        assert "a bug in asrnorm" not in said, f"{words}: {said}"
    finally:
        os.chdir(before)


def call(main, words):
    """Run the command line in this process; return its status and what it printed."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(words)
        out.flush()
    return status, out.buffer.getvalue().decode("utf-8", "replace")
