"""A launch on a Ray cluster of two nodes, one of which is killed in the middle of its second run.

`python -m helpers.ray_kill FOLDER` prints what happened as JSON. A process of its own: Ray leaves threads and warnings.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from asrnorm.launch import Job, launch
from asrnorm.launch.queue import last_step
from asrnorm.launch.ray_cluster import RayExecutor
from helpers.tiny_run import Choice, tiny_config

STEPS = 40


def configs():
    method = Choice(name="toy_noise", args={"pause": 0.1})
    return {f"run{seed}": tiny_config(seed=seed, steps=STEPS, log_every=1, method=method) for seed in range(4)}


class Lines:
    """A view that remembers what was said."""

    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)

    def show(self, board):
        pass


def descendants(parent):
    """The processes below one, with their command lines."""
    parents, words = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            words[int(path.name)] = path.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
    found, level = {}, {parent}
    while level:
        level = {child for child, above in parents.items() if above in level}
        found |= {child: words[child] for child in level if child in words}  # some end meanwhile
    return found


def kill_node(raylet, place, report):
    """Wait until some run is done and another is in the middle on that node; then kill all of the node but the run."""
    while True:
        time.sleep(0.05)
        done = {path.parent.name: path.stat().st_mtime_ns for path in place.glob("*/result.json")}
        below = descendants(raylet)
        training = {pid: words for pid, words in below.items() if "helpers.toy_asrnorm" in words and "train" in words}
        if not done or not training:
            continue
        (pid, words), *_ = training.items()
        step = last_step(Path(words[words.index("--out") + 1]) / "log.jsonl")
        if 12 <= step < STEPS - 10 and Path(words[words.index("--out") + 1]).name not in done:
            break
    report |= {"done_before": done, "victim": Path(words[words.index("--out") + 1]).name, "killed_at": step}
    for process in (raylet, *(other for other in below if other != pid)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    report["training_died"] = not Path(f"/proc/{pid}").exists()


def main(place):
    from ray.cluster_utils import Cluster

    jobs = [Job(config=c, folder=place / name, module="helpers.toy_asrnorm") for name, c in configs().items()]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    raylet = second.all_processes["raylet"][0].process.pid
    report, view = {}, Lines()
    try:
        executor = RayExecutor(cluster.address)
        report["slots"] = executor.slots()
        threading.Thread(target=kill_node, args=(raylet, place, report), daemon=True).start()
        outcome = launch(jobs, executor, view=view)
        again = launch(jobs, RayExecutor(cluster.address), view=Lines())
    finally:
        cluster.shutdown()
    report |= {
        "done": sorted(job.name for job in outcome.done),
        "failed": [failure.error for failure in outcome.failed],
        "done_again": len(again.done),
        "said": view.said,
        "results": {path.parent.name: path.stat().st_mtime_ns for path in place.glob("*/result.json")},
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
