"""Where and when a run was made: commit, day, versions, machine. Kept in `env.json`, which no number depends on."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import asrnorm
from asrnorm.commit import find_commit
from asrnorm.errors import InputError
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


def refuse_other_data(path: Path, classes: Sequence[str], num_images: int, listing: str = "", sizes: str = "") -> None:
    """Refuse to go on with a run whose images are others now.

    Other classes: its outputs would stand for the wrong ones. Other images: what is held out would move, and images be
    trained on that the first part of the run was chosen by.

    Args:
        path: `env.json` of the run.
        classes: of the suite as it is now.
        num_images: of the source, held-out ones included.
        listing: what `Suite.source_listing` returns.
        sizes: what `Suite.source_sizes` returns.

    Raises:
        InputError: `env.json` names other classes, these in another order, another number of source images, or as many
            of other names or sizes.
    """
    try:
        begun = json.loads(path.read_text())
        before, count = list(begun["classes"]), int(begun.get("images", num_images))
        named, sized = begun.get("listing", listing), begun.get("sizes", sizes)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if before != list(classes):
        gone = ", ".join(str(name) for name in before if name not in classes) or "none"
        new = ", ".join(name for name in classes if name not in before) or "none"
        raise InputError(
            f"{path.parent}: the run was begun with other classes (gone: {gone}; new: {new}); start over with --fresh"
        )
    others = f"{count:,} images of the source, there are {num_images:,} now" if count != num_images else ""
    if not others and named != listing:
        others = f"other images of the source: there are {num_images:,} as before, but not of the same names"
    if not others and sized != sizes:
        others = f"other images of the source: there are {num_images:,} of the same names, but other files"
    if others:
        raise InputError(
            f"{path.parent}: the run was begun with {others}; "
            "bring back those that it was begun with, or start over with --fresh"
        )
