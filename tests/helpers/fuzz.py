"""Damaged files and hostile calls: every reader returns or raises one line of its own errors, soon.

`python -m helpers.fuzz INPUTS SECONDS SEED [--kind KIND]... [-j PROCESSES] [--out FILE]` runs that many inputs, as many
of every kind as its cost allows, or stops when the time is over. It prints as JSON the counts, and every input that
ended otherwise with its number; `--again KIND NUMBER` repeats one with its traceback.
"""

import argparse
import contextlib
import functools
import gc
import logging
import math
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import torch
import typer.main

from asrnorm.core.errors import AsrnormError
from helpers import fuzz_calls, fuzz_files, fuzz_python, fuzz_runs
from helpers.fuzz_kind import KINDS
from helpers.parallel import fork, in_processes, write_report

MODULES = (fuzz_calls, fuzz_files, fuzz_python, fuzz_runs)  # each registers kinds
SECONDS = 20  # for one input: nothing here takes a tenth of that
MEMORY = 8 << 30  # bytes of addresses beside those of the imported libraries
MOST_LOST = 20  # processes of one worker
DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory, where no input waits for a flush


def attempt(name, number, seed):
    """Run one input; return `None`, or how it ended otherwise than it may."""
    draw = random.Random(f"{seed} {name} {number}")
    with tempfile.TemporaryDirectory() as folder:
        signal.alarm(SECONDS)
        try:
            KINDS[name].attempt(Path(folder), draw)
        except AsrnormError as error:
            return None if len(str(error)) < 20_000 else f"a long message: {error!r:.300}"
        except (Exception, SlowError) as error:
            signal.alarm(0)
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if "asrnorm" in f.filename] or list(frames)
            return f"{type(error).__name__}: {error!s:.300} ({Path(own[-1].filename).name}:{own[-1].lineno})"
        finally:
            signal.alarm(0)
    return None


class SlowError(BaseException):
    """Raised in the middle of an input; no `except Exception` or `except OSError` on the way takes it."""


def ring(number, frame):
    raise SlowError(f"more than {SECONDS} s")


class Share:
    """The inputs of one worker, in memory that it shares with the process which replaces it where an input ends it."""

    def __init__(self, worker, options):
        self.names = options.kind or list(KINDS)
        self.schedule = [(name, within) for name in self.names for within in range(KINDS[name].weight)]
        count = math.ceil(options.inputs / len(self.schedule))
        self.rounds = range(worker, count, options.processes)
        self.seed, self.until = options.seed, time.monotonic() + options.seconds
        self._values = memoryview(mmap.mmap(-1, 8 * (2 + 2 * len(self.names)))).cast("d")
        self.failures = Path(tempfile.mkdtemp()) / "failures"

    @property
    def position(self):
        return int(self._values[0])

    @property
    def input(self):
        """The kind and number of the next input, or the one that is running."""
        name, within = self.schedule[self.position % len(self.schedule)]
        return name, self.rounds[self.position // len(self.schedule)] * KINDS[name].weight + within

    def is_over(self):
        return self.position >= len(self.rounds) * len(self.schedule) or time.monotonic() > self.until

    def is_stuck(self):
        """Return whether an input takes so long that no signal can have ended it."""
        started = self._values[1]  # read once: the other process sets it to 0 between inputs
        return started and time.monotonic() - started > 3 * SECONDS

    def run(self):
        """Run inputs until they or the time are over."""
        logging.disable(logging.CRITICAL)
        signal.signal(signal.SIGALRM, ring)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        while not self.is_over():
            name, number = self.input
            self._values[1] = time.monotonic()
            found = attempt(name, number, self.seed)
            self.count(name, number, found)

    def count(self, name, number, found):
        """Count an input, and go on to the next."""
        at = 2 + 2 * self.names.index(name)
        self._values[at] += 1
        self._values[at + 1] = max(self._values[at + 1], time.monotonic() - self._values[1])
        if found is not None:
            with self.failures.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{name}\t{number}\t{' '.join(found.split())}\n")
        self._values[1] = 0
        self._values[0] += 1

    def report(self):
        lines = self.failures.read_text("utf-8").splitlines() if self.failures.exists() else []
        counts = {name: int(self._values[2 + 2 * i]) for i, name in enumerate(self.names)}
        slowest = {name: self._values[3 + 2 * i] for i, name in enumerate(self.names)}
        return {"counts": counts, "slowest": slowest, "failures": [line.split("\t", 2) for line in lines]}


def work(worker, options):
    """Run the inputs of a worker; one that ends the process, or cannot be interrupted, is reported too."""
    share, lost = Share(worker, options), 0
    import_module("torch._dynamo")  # which some networks need
    typer.main.get_command = functools.cache(typer.main.get_command)  # putting it together takes longer than most calls
    gc.freeze()  # thousands of inputs, and no look at what was imported
    while not share.is_over() and lost < MOST_LOST:
        child = fork(share.run)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if share.is_stuck():
                os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        if ended[1]:
            share.count(*share.input, f"the process ended with status {ended[1]}")
            lost += 1
    return share.report()


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", nargs=2, metavar=("KIND", "NUMBER"))
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=DISK) as tempfile.tempdir:
        os.environ.setdefault("ASRNORM_CACHE", tempfile.mkdtemp())
        return run(options)


def run(options):
    """Run all inputs, or one of them again, and report; return the status."""
    if options.again:
        name, number = options.again
        folder = Path(tempfile.mkdtemp())
        KINDS[name].attempt(folder, random.Random(f"{options.seed} {name} {number}"))
        return 0
    started = time.monotonic()
    parts = in_processes(lambda worker: work(worker, options), options.processes)
    failures = {}
    for name, number, found in (row for part in parts for row in part["failures"]):
        failures.setdefault(f"{name}: {found}", []).append(int(number))
    counts = {name: sum(part["counts"][name] for part in parts) for name in parts[0]["counts"]}
    slowest = {name: round(max(part["slowest"][name] for part in parts), 2) for name in counts}
    report = {
        "inputs": sum(counts.values()),
        "seconds": round(time.monotonic() - started),
        "kinds": counts,
        "slowest_seconds": slowest,
        "failed": sum(map(len, failures.values())),
        "failures": {found: sorted(numbers)[:5] for found, numbers in sorted(failures.items())},
    }
    with contextlib.suppress(BrokenPipeError):
        write_report(report, options.out)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
