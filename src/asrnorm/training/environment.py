"""`env.json`: software, machine and data of a run, and the check that a resumed run still has the same data."""

import hashlib
import json
import logging
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import asrnorm
from asrnorm.core.config import RunConfig
from asrnorm.core.distributed import World
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.reading import read_json
from asrnorm.core.results import read_environment
from asrnorm.core.settings import find_commit
from asrnorm.data import Suite, create_suite
from asrnorm.data.download.verify import find_weights
from asrnorm.data.image_table import to_nfc
from asrnorm.training.run_folder import write_run_file

logger = logging.getLogger("asrnorm")

START_OVER = "start over with --fresh"


def describe_environment(device: torch.device, world: World) -> dict[str, Any]:
    """Return commit, day, versions and machine as JSON values."""
    return {
        "commit": find_commit(),
        "day": datetime.now(UTC).date().isoformat(),
        "asrnorm": asrnorm.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": world.size,
    }


def describe_source(suite: Suite) -> dict[str, Any]:
    """Return what identifies a run's source: classes, number of images, and digests of their names and sizes."""
    facts = {
        "classes": list(suite.classes),
        "images": suite.count_source(),
        "listing": suite.source_listing(),
        "sizes": suite.source_sizes(),
    }
    return facts if (skipped := suite.source_skipped()) is None else {**facts, "skipped": skipped}


def record_environment(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Write `env.json` at the start of a run; at a resume, add what has changed. Return what the start recorded."""
    try:
        first: dict[str, Any] = read_json(path)
    except (OSError, InputError):
        first = {}
    if not isinstance(first, dict) or "commit" not in first:
        first = dict(now)
    resumed = first.get("resumed")
    if not isinstance(resumed, list) or not all(isinstance(part, dict) for part in resumed):
        resumed = first["resumed"] = []
    latest = first | {key: value for part in resumed for key, value in part.items()}
    if changes := {key: value for key, value in now.items() if latest.get(key) != value}:
        resumed.append(changes)
    write_run_file(path, json.dumps(first, indent=2).encode())
    return first


def check_start(path: Path, suite: Suite, config: RunConfig) -> dict[str, Any]:
    """Check that source and initial weights are those a run started with; return what identifies its data."""
    facts = check_source(path, suite) | {"targets": suite.target_listing()}
    return facts if config.weights is None else facts | {"weights": _check_weights(path, config.weights)}


def check_source(path: Path, suite: Suite, otherwise: str = START_OVER) -> dict[str, Any]:
    """Check by `compare_source` that a suite's source is the one a run started with; return what identifies it."""
    facts = describe_source(suite)
    compare_source(path, facts, otherwise)
    return facts


def check_finished(path: Path, config: RunConfig) -> None:
    """Check that the result of a finished run belongs to the present images and weights; missing ones are ignored.

    Changed target images, which affect no weight, only cause a warning.
    """
    if (suite := _find_own_images(config)) is not None:
        check_source(path, suite)
        targets = suite.target_listing()
        if read_environment(path).get("targets", targets) != targets:
            logger.warning("%s: the target images changed after the run; asrnorm evaluate scores them", path.parent)
    if config.weights is not None and _exists(config.weights):
        _check_weights(path, config.weights)


def has_other_images(config: RunConfig, listing: str) -> bool:
    """Tell whether the user's own images are present and have other names than a kept result was made with.

    `listing`, the digest of names kept with the result, is empty for results from before it was kept.
    """
    suite = _find_own_images(config)
    return bool(listing) and suite is not None and suite.source_listing() != listing


def compare_source(path: Path, now: Mapping[str, Any], otherwise: str = START_OVER) -> None:
    """Raise if the source of a run has changed.

    With other classes, the outputs would stand for the wrong ones. With other images, the held-out set would change and
    the run would train on images that its first pass was selected by.

    Facts that `env.json` lacks, or a file that cannot be read, are not compared. `now` is what `describe_source`
    returns; `otherwise` says what the user can do, other than restoring the images.
    """
    recorded = read_environment(path)
    try:
        classes = [str(name) for name in recorded["classes"]]
        count = int(recorded.get("images", now["images"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return
    if list(map(to_nfc, classes)) != list(map(to_nfc, now["classes"])):
        gone = ", ".join(name for name in classes if name not in now["classes"]) or "none"
        new = ", ".join(name for name in now["classes"] if name not in classes) or "none"
        raise InputError(f"{path.parent}: the run started with other classes (gone: {gone}; new: {new}); {otherwise}")
    change = ""
    if count != now["images"]:
        change = f"{count:,} source images, now there are {now['images']:,}"
    elif recorded.get("listing", now.get("listing")) != now.get("listing"):
        change = f"other source images: still {count:,}, but with other names"
    elif recorded.get("sizes", now.get("sizes")) != now.get("sizes"):
        change = f"other source images: still {count:,} with the same names, but other files"
    elif (before := recorded.get("skipped", [])) != now.get("skipped", before):
        change = f"other source images: without {_count(before)} unreadable ones, now without {_count(now['skipped'])}"
    if change:
        raise InputError(f"{path.parent}: the run started with {change}; restore the original ones, or {otherwise}")


def _count(names: object) -> str:
    return f"{len(names):,}" if isinstance(names, list) else "some"


def _check_weights(path: Path, weights: str) -> str:
    """Return the digest of a weights file after comparing it with the one that the run started from."""
    file = find_weights(weights)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    if read_environment(path).get("weights", digest) != digest:
        raise InputError(
            f"{path.parent}: the run started with other weights than {file} has now; restore the original file, or "
            f"{START_OVER}"
        )
    return digest


def _exists(weights: str) -> bool:
    try:
        return find_weights(weights).is_file()
    except InputError:
        return False


def _find_own_images(config: RunConfig) -> Suite | None:
    """The suite of a run if its images are present and the user's own; published ones are the same everywhere."""
    try:
        suite = create_suite(config.suite.name, **config.suite.args)
        return suite if suite.source_listing() else None
    except AsrnormError:  # no folder, no such domain, no images
        return None
