"""Which arrays of CIFAR-10-C are the published ones and which were generated here, and how near those come.

Generation leaves `generated.json` beside the arrays, with the checksum and the seed of each.
"""

import json
import platform
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError
from asrnorm.data.fetch.checksum import compute
from asrnorm.data.fetch.entry import File
from asrnorm.data.fetch.examine import DAMAGED, PRESENT

RECORD = "generated.json"
EXACT = frozenset(
    ("brightness", "contrast", "defocus_blur", "gaussian_blur", "pixelate", "saturate", "zoom_blur", "labels")
)
"""Deterministic, and met to the bit on x86-64 with the pinned library versions."""


def judge_array(path: Path, file: File) -> tuple[str, str]:
    """Return state and detail of one `.npy` file of CIFAR-10-C."""
    try:
        assert file.content is not None
        file.content(path)
    except InputError as error:
        return DAMAGED, str(error)
    name = path.name.removesuffix(".npy")
    record = read_record(path.with_name(RECORD)).get(name)
    md5 = compute(path, ["md5"])["md5"]
    recorded = record is not None and f"md5:{record.get('md5')}" == md5
    if md5 == file.digest:
        made = "generated, deterministic, " if recorded else ""
        return PRESENT, f"{made}equal to the published array (MD5)"
    if record is None:
        return (
            PRESENT,
            f"not the published array, nor recorded as generated here; {_distance(name, platform.machine())}",
        )
    if not recorded:
        return DAMAGED, "changed since it was generated (MD5): remove it and generate it again"
    how = f"generated with seed {record.get('seed')}" if _is_random(name) else "generated, deterministic"
    return PRESENT, f"{how}; {_distance(name, str(record.get('machine') or platform.machine()))}"


def _is_random(name: str) -> bool:
    return name not in EXACT and name != "jpeg_compression"


def _distance(name: str, machine: str) -> str:
    if _is_random(name):
        return "random, so like the published one in distribution only"
    if name == "jpeg_compression":
        return "libjpeg-turbo differs from the published array's libjpeg by about one grey level"
    if machine.lower() not in ("x86_64", "amd64"):
        return f"on {machine} equal to the published one within one grey level, to the bit only on x86-64"
    return "the pinned library versions give the published bits on x86-64: generate it again with those"


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a `generated.json` says of each array; nothing where there is none or it cannot be read."""
    try:
        files = json.loads(path.read_text("utf-8"))["files"]
        return {name: dict(entry) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
