"""Settings of this machine: environment variables, the data folder, cores, and the commit of the source tree."""

import os
import subprocess
from pathlib import Path

import asrnorm

# Environment variables
DATA_VARIABLE = "ASRNORM_DATA"  # the folder of data sets
BACKEND_VARIABLE = "ASRNORM_BACKEND"  # the implementation of norm layers and of augmentations, one of `BACKENDS`
DEVICE_VARIABLE = "ASRNORM_DEVICE"  # which device `auto` stands for; launches set it to give a run its GPU
COMMIT_VARIABLE = "ASRNORM_COMMIT"  # the commit, where the source tree was copied without its repository

BACKENDS = ("auto", "reference", "triton")
LEAST_CAPABILITY = (8, 0)  # of a GPU on which norm layers run as Triton kernels
LEAST_FUSED_CAPABILITY = (7, 0)  # the same for RSDA's transformations and the PACS augmentation
_GIT_SECONDS = 10
_DIGITS = 12  # of a short commit


def data_folder() -> Path:
    """Return the folder of data sets: `ASRNORM_DATA`, or a folder in the user's cache."""
    chosen = os.environ.get(DATA_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "asrnorm" / "data"


def count_cores() -> int:
    """Return how many cores this process may use; a shared machine may grant fewer than it has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_commit() -> str:
    """Return the commit of the source tree, with `+` if files differ from it, or the version outside a repository."""
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    package = Path(asrnorm.__file__).parent
    # Installed into someone's project, the package may lie inside a repository that is not its own.
    is_tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    commit = _git(package, "rev-parse", "HEAD") if is_tracked else None
    if not commit:
        return f"v{asrnorm.__version__}"
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if changed else commit


def shorten_commit(commit: str) -> str:
    """Return the first digits of a commit and its `+`."""
    digits = commit.removesuffix("+")
    return digits[:_DIGITS] + commit[len(digits) :]


def _git(folder: Path, *words: str) -> str | None:
    # Without its optional lock: killed with this process, git would leave the user's repository locked.
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
