"""`python -m helpers.fake_asrnorm`: what the launcher knows of a run, without torch, so that a launch takes a moment.

It counts steps into `log.jsonl`, goes on from where the log ends, holds the run's lock, stops on SIGTERM, and leaves a
result. `method.args` of its config: `pause` in seconds a step, `failures` before it works, `deadly` for a signal to
end by, `diverge` to leave that file. An evaluation called `broken` fails.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

from asrnorm.core.config import content_hash, load_config, override
from asrnorm.core.results import DomainScore, RunResult, read_result, write_result
from asrnorm.launch.queue import last_step


def train(words):
    config, folder = load_config(Path(words[words.index("--config") + 1])), Path(words[words.index("--out") + 1])
    options = config.method.args
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with (folder / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (folder / "starts").open("a") as starts:
            starts.write(f"{last_step(folder / 'log.jsonl')} {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}\n")
        (folder / "parent").write_text(str(os.getppid()))
        tries = len((folder / "starts").read_text().splitlines())
        if tries <= options.get("failures", 0):
            sys.stderr.write("some warning\nasrnorm: the disk is full; free some space\nafterthought\n")
            return 1
        if options.get("deadly"):
            os.kill(os.getpid(), options["deadly"])
        if options.get("diverge"):
            (folder / "divergence.json").write_text("{}")
            return 1
        with (folder / "log.jsonl").open("a") as log:
            for step in range(last_step(folder / "log.jsonl") + 1, config.steps + 1):
                time.sleep(options.get("pause", 0))
                log.write(json.dumps({"step": step}) + "\n")
                log.flush()
                if told:
                    sys.stderr.write(f"asrnorm: interrupted at step {step}\n")
                    return 1
        if not options.get("lazy"):
            write_result(folder / "result.json", result(config))
    return 0


def evaluate(words):
    folder = Path(words[0])
    if "--statistics" in words:
        (folder / "analyses").mkdir(exist_ok=True)
        (folder / "analyses" / "statistics.npz").touch()
        return 0
    if words[words.index("--as") + 1] == "broken":
        sys.stderr.write("asrnorm: rendered digits need matplotlib\n")
        return 1
    read_result(folder / "result.json")
    changes = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set")
    config = override(load_config(folder / "launch.yaml"), changes)
    (folder / "evaluations").mkdir(exist_ok=True)
    write_result(folder / "evaluations" / f"{words[words.index('--as') + 1]}.json", result(config))
    return 0


def result(config):
    score = DomainScore(name="a", accuracy=0.5, brier=0.0, brier_sum=0.0, nll=0.0, ece=0.0, num_samples=1)
    return RunResult(
        recipe=config.recipe,
        scale=config.scale,
        seed=config.seed,
        config_hash=content_hash(config),
        commit="",
        selection="last",
        num_parameters=1,
        source=score,
        domains=(score,),
        missing=(),
        average_accuracy=0.5,
        adversarial={},
        wall_seconds=0.0,
        steps=config.steps,
    )


if __name__ == "__main__":
    sys.exit({"train": train, "evaluate": evaluate}[sys.argv[1]](sys.argv[2:]))
