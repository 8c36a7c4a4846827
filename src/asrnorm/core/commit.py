"""The commit of the source tree, recorded with every result."""

import os
import subprocess
from pathlib import Path

import asrnorm

VARIABLE = "ASRNORM_COMMIT"
"""Environment variable that names the commit when the source tree was copied without its repository."""

_GIT_SECONDS = 10
_DIGITS = 12


def find_commit() -> str:
    """Return the commit of the source tree, with `+` if files differ from it, or the version outside a repository."""
    if named := os.environ.get(VARIABLE):
        return named
    package = Path(asrnorm.__file__).parent
    version = f"v{asrnorm.__version__}"
    # Installed into someone's project, the package may lie inside a repository that is not its own.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return version
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return version
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if changed else commit


def shorten_commit(commit: str) -> str:
    """Return the first digits of a commit and its `+`.

    Example:
        >>> shorten_commit("699d2a08edc286938191f4db09b9db7da0461f82+"), shorten_commit("47563b9+")
        ('699d2a08edc2+', '47563b9+')
    """
    digits = commit.removesuffix("+")
    return digits[:_DIGITS] + commit[len(digits) :]


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
