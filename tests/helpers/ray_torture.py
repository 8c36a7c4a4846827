"""A study on a Ray cluster of three nodes, a random one of which is killed again and again, and replaced.

`python -m helpers.ray_torture FOLDER SEEDS KILLS SEED` prints what happened as JSON. The study has two runs a seed;
every kill waits until a run on the node is in the middle. The head of the cluster, which does no work, is left alone.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from asrnorm.core.config import run_name
from asrnorm.launch.queue import last_step
from helpers.kill_run import outcome
from helpers.ray_kill import descendants
from helpers.toy_study import NORMS, STEPS, toy_recipe

NODES = 3


def trainings(raylet):
    """Return the run folders of the trainings on a node, by process."""
    found = {}
    for pid, words in descendants(raylet).items():
        if "train" in words and "--out" in words and "asrnorm" in words:
            found[pid] = Path(words[words.index("--out") + 1])
    return found


def kill_node(raylet, spared):
    """Kill a node as a power cut does, but for the trainings, which must notice by themselves; tell whether they do."""
    for process in (raylet, *(pid for pid in descendants(raylet) if pid not in spared)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in spared):
            return True
        time.sleep(0.01)
    return False


def torment(cluster, study, kills, runs, draw, report):
    """Kill random nodes until there were enough kills or the study ends."""
    nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
    seen = report["results"]
    while study.poll() is None:
        time.sleep(0.05)
        for path in runs.glob("*/result.json"):
            seen.setdefault(path.parent.name, path.stat().st_mtime_ns)
        if report["kills"] == kills:
            continue
        at = draw.randrange(NODES)
        raylet = nodes[at].all_processes["raylet"][0].process.pid
        aim, until = draw.randrange(1, STEPS), time.monotonic() + 60
        while study.poll() is None and time.monotonic() < until:
            busy = {pid: folder for pid, folder in trainings(raylet).items() if not (folder / "result.json").exists()}
            if any(last_step(folder / "log.jsonl") >= aim for folder in busy.values()):
                report["kills"] += 1
                report["steps"].append(max(last_step(folder / "log.jsonl") for folder in busy.values()))
                report["left_alive"] += not kill_node(raylet, set(trainings(raylet)))
                cluster.remove_node(nodes[at], allow_graceful=False)
                nodes[at] = cluster.add_node(num_cpus=1)
                break
            time.sleep(0.02)


def compare(runs, seeds, folder):
    """Train every run again without kills; return which differ."""
    from asrnorm.training import run

    differing = []
    for norm in NORMS:
        for seed in range(seeds):
            config = toy_recipe(norm, "smoke", seed=seed)
            run(config, folder / run_name(config))
            whole, killed = outcome(folder / run_name(config)), outcome(runs / run_name(config))
            differing += [f"{run_name(config)}: {key}" for key in whole if whole[key] != killed[key]]
    return differing


def main(folder, seeds, kills, seed):
    from ray.cluster_utils import Cluster

    runs, report = folder / "runs", {"kills": 0, "steps": [], "left_alive": 0, "results": {}}
    started = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    words = ["reproduce", "toys", "--scale", "smoke", "--seeds", str(seeds), "--import", "helpers.toy_study"]
    words += ["--ray", cluster.address, "--runs", str(runs), "--out", str(folder / "page")]
    try:
        with (folder / "said").open("w") as said:
            command = [sys.executable, "-m", "asrnorm", *words]
            study = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder)
            torment(cluster, study, kills, runs, random.Random(seed), report)
    finally:
        cluster.shutdown()
    last = {path.parent.name: path.stat().st_mtime_ns for path in runs.glob("*/result.json")}
    starts = [(runs / name / "launch.log").read_text().count(": train\n") for name in last]
    report |= {
        "status": study.returncode,
        "runs": len(last),
        "written_again": sum(last[name] != when for name, when in report.pop("results").items()),
        "starts": sum(starts),
        "lost": (folder / "said").read_text().count("its machine was lost"),
        "differing": compare(runs, seeds, folder / "whole"),
        "seconds": round(time.monotonic() - started),
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
