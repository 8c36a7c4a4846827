"""Kill every command that writes files, at random moments; the same command then ends as if nothing had happened.

Run as a process of its own, which imports torch once and forks: `python -m helpers.torture KILLS SECONDS SEED`
prints the kills of every command and what differed, as JSON. `helpers.kill_run` does the same to training alone, aimed
at its phases, and compares more.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from PIL import Image

from asrnorm.core.config import dump_config
from helpers import tiny_run
from helpers.audited import MODULE, make_folder
from helpers.made_up_run import make_up_runs
from helpers.small_study import small_study

COMMANDS = {
    "train": "train --config config.yaml --out new",
    "train a finished run": "train --config config.yaml --out run",
    "evaluate": "evaluate run --as all --json scores.json",
    "evaluate --statistics": "evaluate run --statistics",
    "export": "export run --format safetensors",
    "report": "report runs",
    "report --keep": "report small --runs runs --scale smoke --seeds 1 --keep --out page",
    "audit": "audit net.py:net --data photos --out audit --quick --size 16 --device cpu --workers 1",
    "data corrupt": "data corrupt photos --corruption fog --out foggy",
    "data show": "data show digits_mini --out sheet.png",
}
TIMES = re.compile(rb'"(wall_seconds|seconds|values_sha256)": [^,\n}]+')  # equal now and then, by chance
IGNORED = (".lock", ".launch.lock", "events")


def prepare(folder):
    """Lay out what the commands read: a finished run, runs for a report, images, a model of the user's own."""
    config = tiny_run.tiny_config(norm=tiny_run.Choice(name="asr"), steps=8)
    folder.mkdir()
    (folder / "config.yaml").write_text(dump_config(config))
    (folder / "net.py").write_text(MODULE)
    make_folder(folder / "photos", per_class=3, side=16)
    Image.new("RGB", (8, 8)).save(folder / "photos" / "red" / "plain.png")
    make_up_runs(small_study(), folder / "runs", seeds=(0,))
    status = os.waitpid(start(COMMANDS["train"].replace("new", "run"), folder), 0)[1]
    assert status == 0, (folder / ".said").read_text()
    (folder / ".said").unlink()


def start(command, folder):
    """Fork a process that runs the command in the folder; return its id."""
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
    """Run the command to its end; return what it left and the seconds it took."""
    started = time.monotonic()
    status = os.waitpid(start(command, folder), 0)[1]
    if status:
        said = (folder / ".said").read_text(errors="replace").strip().splitlines()
        raise RuntimeError(f"status {status}: {said[-1] if said else ''}")
    return outcome(folder), time.monotonic() - started


def kill_once(command, folder, seconds, draw):
    """Start the command and kill it after a random time; return whether it was killed before its end."""
    child = start(command, folder)
    time.sleep(draw.uniform(0, 1.05 * seconds))
    if os.waitpid(child, os.WNOHANG)[0]:
        return False
    os.killpg(child, signal.SIGKILL) if os.getpgid(child) == child else os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(kills, seconds, seed, names):
    tiny_run.install()
    import_module("asrnorm.studies").STUDIES.register("small")(small_study)
    for module in ("torch._dynamo", "safetensors.torch", "yaml", "asrnorm.training", "asrnorm.cli.main", "matplotlib"):
        import_module(module)  # once, not in every child
    for module in ("matplotlib.figure", "scipy.stats", "jinja2", "asrnorm.audit", "asrnorm.exporting"):
        import_module(module)
    draw, place = random.Random(seed), Path(tempfile.mkdtemp())
    os.environ["ASRNORM_CACHE"] = str(place / "cache")
    prepare(place / "base")
    chosen = names or list(COMMANDS)
    counts, differing, until = dict.fromkeys(chosen, 0), [], time.monotonic() + seconds
    for name in chosen:
        command, wholes = COMMANDS[name], []
        for number in range(2):
            shutil.copytree(place / "base", place / f"whole{number}")
            wholes.append(finish(command, place / f"whole{number}"))
            shutil.rmtree(place / f"whole{number}")
        (first, lasted), (second, again) = wholes
        # Pages with dates or timings differ between runs that were not disturbed, too.
        fixed = {path: content for path, content in first.items() if second.get(path) == content}
        share = (until - time.monotonic()) / (len(chosen) - chosen.index(name))
        enough = time.monotonic() + share
        while counts[name] < kills and time.monotonic() < enough:
            folder = place / "killed"
            shutil.copytree(place / "base", folder)
            for _ in range(draw.randint(1, 3)):
                counts[name] += kill_once(command, folder, min(lasted, again), draw)
            try:
                found, _ = finish(command, folder)
                wrong = [path for path, content in fixed.items() if found.get(path) != content]
                wrong += [path for path in found if path not in first]
            except RuntimeError as error:
                wrong = [str(error)]
            differing += [f"{name}: {path}" for path in wrong]
            shutil.rmtree(folder)
    shutil.rmtree(place)
    report = {"kills": sum(counts.values()), "commands": counts, "differing": sorted(set(differing))}
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 1 if differing or not all(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
