"""How far a run is, from the files in its folder."""

import json
from pathlib import Path

from asrnorm.launch.job import Job

_TAIL = 65_536  # bytes; a row with the lambdas of a deep network has some thousands


def read_position(job: Job) -> tuple[str, int]:
    """Return the phase of a job and the step that its log has come to, from the files in its folder."""
    if (job.folder / "result.json").exists():
        rest = job.missing()
        return (rest[0].label if rest else "done"), job.config.steps
    if (job.folder / "model.safetensors").exists():
        return "evaluate", job.config.steps
    if (job.folder / "log.jsonl").exists():
        step = last_step(job.folder / "log.jsonl")
        return ("train" if step < job.config.steps else "evaluate"), step
    if (job.folder / "choice" / "log.jsonl").exists():
        return "choose", last_step(job.folder / "choice" / "log.jsonl")
    return "train", 0


def measure_way(job: Job) -> tuple[int, int, int]:
    """Return how far a job is as numbers that only grow: its phase, the step of its log, the pieces that are there."""
    phase, step = read_position(job)
    return {"choose": 0, "train": 1}.get(phase, 2), step, -len(job.missing())


def last_step(log: Path) -> int:
    """Return the step of the last whole row of a log, 0 where there is none.

    Example:
        >>> last_step(Path("nowhere.jsonl"))
        0
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # being written, cut, or damaged
            continue
    return 0
