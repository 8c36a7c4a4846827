"""Where and when a run was made: commit, day, versions, machine. Kept in `env.json`, which no number depends on."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import asrnorm
from asrnorm.commit import find_commit
from asrnorm.training.folder import write_run_file
from asrnorm.world import World


def describe_environment(device: torch.device, world: World) -> dict[str, Any]:
    """Return commit, day, versions and machine as JSON values.

    Example:
        >>> describe_environment(torch.device("cpu"), World())["device"]
        'cpu'
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "commit": find_commit(),
        "day": datetime.now(UTC).date().isoformat(),
        "asrnorm": asrnorm.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "device": device.type,
        "gpu": gpu,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": world.size,
    }


def record_environment(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Write `env.json` at the start of a run; where it is resumed elsewhere, add what it was resumed on.

    Returns:
        What was recorded at the start.
    """
    try:
        first: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        first = {}
    if not isinstance(first, dict) or "commit" not in first:
        first = dict(now)
    if not isinstance(first.get("resumed"), list) or not all(isinstance(part, dict) for part in first["resumed"]):
        first["resumed"] = []
    resumed = first["resumed"]
    latest = first | {key: value for part in resumed for key, value in part.items()}
    difference = {key: value for key, value in now.items() if latest.get(key) != value}
    if difference:
        resumed.append(difference)
    write_run_file(path, json.dumps(first, indent=2).encode())
    return first
