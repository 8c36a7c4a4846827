"""Write the hashes of every pin into the requirement files: `python -m tools.pin_hashes [FILE]...`.

For each `name==version` it asks the package index which files there are, and keeps those that fit a Python and a
platform for which the pinned torch has a build, and the source archive. Hashes that the index does not have stay while
the version does: those of wheels from elsewhere, given as FILE, such as torch's build for CPUs.
"""

import hashlib
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

FOLDER = Path(__file__).parents[1] / "requirements"
NAMES = ("build", "torch", "run", "data", "test", "cuda")
INDEX = "https://pypi.org/simple"
PLATFORM = re.compile(r"any|manylinux.*_(x86_64|aarch64)|macosx_.*_(arm64|universal2)")
PYTHON = re.compile(r"(py3|py2.py3)-none|cp31[1-4]-(none|cp31[1-4])|cp3\d?-none|cp31[1-4]-cp314t|cp3(\d|1[0-4])-abi3")
LINK = re.compile(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"')


def read_pins(path: Path) -> dict[str, set[str]]:
    """Return the hashes of each line of a requirement file; a line without a version, such as `-r`, has none."""
    lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
    return {line.split(" --hash=")[0].strip(): set(re.findall(r"--hash=(\S+)", line)) for line in lines}


def find_hashes(requirement: Requirement) -> set[str]:
    """Return the hashes that the index gives for the files of a pinned version."""
    name, version = canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("==")
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        links = LINK.findall(answer.read().decode())
    return {f"sha256:{digest}" for file, digest in links if _fits(file, name, version)}


def _fits(file: str, name: NormalizedName, version: str) -> bool:
    """Return whether a file is of that version, for a Python and a platform that torch has."""
    try:
        if not file.endswith(".whl"):
            return file.endswith(".tar.gz") and [str(part) for part in parse_sdist_filename(file)] == [name, version]
        if [str(part) for part in parse_wheel_filename(file)[:2]] != [name, version]:
            return False
    except (InvalidWheelFilename, ValueError):
        return False
    *_, python, abi, platform = file.removesuffix(".whl").split("-")
    return bool(PYTHON.match(f"{python}-{abi}") and PLATFORM.match(platform))


def format_pin(line: str, hashes: set[str]) -> str:
    """Return a line of a requirement file with its hashes."""
    return " \\\n    ".join([line, *(f"--hash={value}" for value in sorted(hashes))]) + "\n"


def main(files: list[str]) -> None:
    """Ask the index for all pins and write the files anew."""
    own: dict[str, set[str]] = {}
    for file in map(Path, files):
        project, version, *_ = parse_wheel_filename(file.name)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        own.setdefault(f"{project}=={version.public}", set()).add(f"sha256:{digest}")
    pages = {name: read_pins(FOLDER / f"{name}.txt") for name in NAMES}
    pins = sorted({line for page in pages.values() for line in page if "==" in line})
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(pins, pool.map(find_hashes, map(Requirement, pins)), strict=True))
    for line, hashes in found.items():
        if not hashes:
            raise SystemExit(f"{line}: the index has no file of this version")
    for name, page in pages.items():
        rows = []
        for line, old in page.items():
            wanted = Requirement(line) if "==" in line else None
            given = own.get(f"{canonicalize_name(wanted.name)}{wanted.specifier}", set()) if wanted else set()
            rows.append(format_pin(line, found.get(line, set()) | old | given))
        (FOLDER / f"{name}.txt").write_text("".join(rows), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
