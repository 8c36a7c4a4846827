"""Which source a number comes from."""

import os
import subprocess
from pathlib import Path

import asrnorm

VARIABLE = "ASRNORM_COMMIT"
"""Names the commit where the source tree was copied without, or beside, its repository."""

_GIT_SECONDS = 10


def find_commit() -> str:
    """Return the commit of the source tree, with `+` where files differ from it; the version where there is none."""
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


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
