"""Kill a run with SIGKILL again and again, at chosen and at random moments; compare it with one that ran through.

Run as a process of its own: it imports torch once and forks, so that an attempt costs a fraction of a second.
`python -m helpers.kill_run FOLDER KILLS SECONDS SEED [-j PROCESSES] [--out FILE]` prints what happened as JSON: it goes
on until there were that many kills, and two in every phase, or until the time is over.
"""

import argparse
import gc
import json
import mmap
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from asrnorm.training.checkpoint import unpack
from helpers import tiny_run
from helpers.parallel import in_processes, write_report
from helpers.tiny_run import Choice, OptimConfig, pretrained_config, tiny_config, write_weights

PHASES = ("step", "grow", "part", "checkpoint", "log", "evaluation", "model", "result")
SLOW = 0.012  # seconds that a watched phase lasts longer, so that the kill falls into it
POLL = SLOW / 6  # seconds between looks at what the run does: more looks cost as much as the run
MOMENT = mmap.mmap(-1, 2)  # what the child does: the phase, and how often it has entered one


def configs(weights):
    return {
        "grow": tiny_config(
            method=Choice(name="toy_grow", args={"interval": 5, "rounds": 3}),
            model=Choice(name="toy_net", args={"dropout": 0.2}),
            optim=OptimConfig(lr=0.004),  # slow, so that the best weights come late
            selection="shifted-val",
            evaluate_every=4,
            augment="cifar",
            steps=24,
        ),
        "choice": pretrained_config(
            weights,
            method=Choice(name="toy_noise"),
            suite=Choice(name="toy", args={"validation": False}),
            selection="source-val",
            evaluate_every=6,
            shuffle=False,
            steps=14,
        ),
    }


def enter(phase):
    MOMENT[0] = PHASES.index(phase)
    MOMENT[1] = (MOMENT[1] + 1) % 256


def watched(phase, function):
    def slow(*arguments, **named):
        enter(phase)
        time.sleep(SLOW / 2)
        try:
            return function(*arguments, **named)
        finally:
            time.sleep(SLOW / 2)
            enter("step")

    return slow


def torn_write(log, row):
    """`RunLog.write`, but a kill may leave half a line."""
    text = json.dumps(row) + "\n"
    enter("log")
    for part in (text[:9], text[9:]):
        log._file.write(part)
        log._file.flush()
        time.sleep(SLOW / 2)
    enter("step")


def watch():
    """Make every phase slow and visible to the parent; no number changes."""
    from asrnorm.training import checkpoint, log, selection
    from asrnorm.training import checkpoint as pool_part

    run = import_module("asrnorm.training.run")  # the package has a function of that name
    tiny_run.ToyGrow.grow = watched("grow", tiny_run.ToyGrow.grow)
    pool_part.write_run_file = watched("part", pool_part.write_run_file)
    selection.Selector.consider = watched("evaluation", selection.Selector.consider)
    run._evaluate = watched("evaluation", run._evaluate)
    write = run.write_run_file
    slow = {"model.safetensors": watched("model", write), "result.json": watched("result", write)}
    run.write_run_file = lambda path, data: slow.get(path.name, write)(path, data)
    checkpoint.CheckpointStore.save = watched("checkpoint", checkpoint.CheckpointStore.save)
    log.RunLog.write = torn_write
    replace, fsync = Path.replace, os.fsync
    Path.replace = lambda path, target: (time.sleep(0.004), replace(path, target), time.sleep(0.004))[1]
    os.fsync = lambda handle: (time.sleep(0.004), fsync(handle))[1]


def start(config, folder):
    """Fork a process that does the run; return its id."""
    MOMENT[0] = MOMENT[1] = 0
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        watch()
        import_module("asrnorm.training.run").run(config, folder)
        status = 0
    except BaseException as error:  # the parent reads it
        folder.with_suffix(".error").write_text(repr(error))
    finally:
        os._exit(status)


def attempt(config, folder, draw):
    """Start the run and kill it somewhere; return the phase it was killed in, `None` where it came to its end."""
    phase = draw.choice((*PHASES[1:], None, None))
    entries, delay = draw.randrange(1, 12), draw.uniform(0, SLOW)
    deadline = time.monotonic() + (draw.uniform(0.02, 0.6) if phase is None else 60)
    child = start(config, folder)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                raise SystemExit(f"the run failed: {folder.with_suffix('.error').read_text()}")
            return None
        there = phase is not None and PHASES[MOMENT[0]] == phase
        if (there and MOMENT[1] >= entries) or time.monotonic() > deadline:
            time.sleep(delay)
            found = PHASES[MOMENT[0]]
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return found if os.WIFSIGNALED(status) else None
        time.sleep(POLL)


def outcome(folder):
    """What must not depend on kills: the bytes of the model, the log less the time, the result less the time."""

    def rows(path):
        return [
            {key: value for key, value in json.loads(line).items() if key != "seconds"}
            for line in path.read_text().splitlines()
        ]

    result = json.loads((folder / "result.json").read_text())
    del result["wall_seconds"], result["values_sha256"]  # the one is part of the other
    logs = {str(path.relative_to(folder)): rows(path) for path in folder.rglob("log.jsonl")}
    named = [part["name"] for part in unpack(folder / "checkpoints" / "last.pt")["parts"]]  # digests of what grew
    parts = [*named, *sorted(path.name for path in folder.rglob("part-*"))]
    left = sorted(path.name for path in folder.rglob(".*") if path.name not in (".lock", ".launch.lock"))
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "logs": logs,
        "result": result,
        "parts": parts,
        "left": left,
    }


def torment(place, most_kills, seconds, seed):
    """Kill runs in a folder until there are enough kills; return what happened."""
    global MOMENT
    MOMENT = mmap.mmap(-1, 2)
    draw = random.Random(seed)
    kills = dict.fromkeys(PHASES, 0)
    report = {"runs": 0, "kills": kills, "differing": [], "most_kills_of_a_run": 0}
    references = {}
    place.mkdir(parents=True, exist_ok=True)
    cases = configs(write_weights(place / "weights.pt"))
    for name, config in cases.items():
        folder = place / f"{name}-whole"
        _, status = os.waitpid(start(config, folder), 0)
        assert status == 0, folder.with_suffix(".error").read_text()
        references[name] = outcome(folder)
    until = time.monotonic() + seconds
    while time.monotonic() < until and (sum(kills.values()) < most_kills or min(kills.values()) < 2):
        name = list(references)[report["runs"] % len(references)]
        folder = place / f"{name}-{report['runs']}"
        of_this_run = 0
        while (phase := attempt(cases[name], folder, draw)) is not None:
            kills[phase] += 1
            of_this_run += 1
        found = outcome(folder)
        report["differing"] += [f"{folder}: {key}" for key in found if found[key] != references[name][key]]
        report["runs"] += 1
        report["most_kills_of_a_run"] = max(of_this_run, report["most_kills_of_a_run"])
    return report


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("kills", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed")
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    tiny_run.install()
    for module in ("torch._dynamo", "safetensors.torch", "yaml", "asrnorm.training"):
        import_module(module)  # once, not in every child
    gc.freeze()  # a collection in a child would copy the pages of what was imported
    share, started = -(-options.kills // options.processes), time.monotonic()
    parts = in_processes(
        lambda worker: torment(options.folder / str(worker), share, options.seconds, f"{options.seed} {worker}"),
        options.processes,
    )
    kills = {phase: sum(part["kills"][phase] for part in parts) for phase in PHASES}
    report = {
        "runs": sum(part["runs"] for part in parts),
        "seconds": round(time.monotonic() - started),
        "total_kills": sum(kills.values()),
        "kills": kills,
        "differing": [line for part in parts for line in part["differing"]],
        "most_kills_of_a_run": max(part["most_kills_of_a_run"] for part in parts),
    }
    write_report(report, options.out)
    gc.unfreeze()  # or modules complain at the end of leaks
    return 1 if report["differing"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
