"""Check the archives of `make dist`: their metadata, and the wheel in a clean environment, where it runs the demo.

python -m tools.check_dist dist
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).parents[1]
PINS = ROOT / "requirements" / "data.txt"
CUDA = ROOT / "requirements" / "cuda.txt"  # what torch from PyPI needs on Linux, and no other build
_STARTS = 5  # of `asrnorm --version`; the fastest counts


def find_archives(folder: Path) -> tuple[Path, Path]:
    """Return the one wheel and the one source archive of a folder."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def read_metadata(archive: Path) -> Metadata:
    """Return the metadata of an archive.

    Raises:
        ExceptionGroup: a field is unknown or has an invalid value.
    """
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            text = wheel.read(name)
    else:
        with tarfile.open(archive) as source:
            member = source.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert member is not None, "PKG-INFO is a file"
            text = member.read()
    return Metadata.from_email(text, validate=True)


def install(wheel: Path, environment: Path) -> Path:
    """Install a wheel with the pinned requirements into a new environment and return its `asrnorm` command.

    `pip check` fails if the pins do not meet what the wheel asks for.
    """
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "install", "--require-hashes", "--no-deps", "-r"]
    subprocess.run([*install, str(PINS)], check=True)
    if "requires cuda" in subprocess.run([*pip, "check"], capture_output=True, text=True, check=False).stdout:
        subprocess.run([*install, str(CUDA)], check=True)
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return environment / "bin" / "asrnorm"


def run_demo(command: Path, folder: Path) -> Path:
    """Run the demo at smoke size outside the tree and return its report."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASRNORM"))}
    environment["ASRNORM_CACHE"] = str(folder / "cache")
    folder.mkdir()
    words = ["demo", "--scale", "smoke", "--seeds", "1", "--out", "demo"]
    subprocess.run([command, *words], cwd=folder, env=environment, check=True)
    return folder / "demo" / "report.html"


def time_start(command: Path) -> float:
    """Return the seconds of CPU time that `asrnorm --version` takes."""
    seconds = []
    for _ in range(_STARTS):
        before = os.times()
        subprocess.run([command, "--version"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    return min(seconds)


def main() -> int:
    """Check the archives of the folder on the command line, and print size and start time."""
    parser = argparse.ArgumentParser(description="Check the archives of `make dist`.")
    parser.add_argument("folder", type=Path)
    wheel, source = find_archives(parser.parse_args().folder.resolve())
    found = [read_metadata(archive) for archive in (wheel, source)]
    lines = [f"{path.name}: {path.stat().st_size / 1e6:.2f} MB" for path in (wheel, source)]
    with tempfile.TemporaryDirectory() as folder:
        command = install(wheel, Path(folder) / "environment")
        report = run_demo(command, Path(folder) / "work")
        assert report.is_file(), report
        lines.append(f"asrnorm --version: {1000 * time_start(command):.0f} ms of CPU time")
    sys.stdout.write("\n".join([f"{found[0].name} {found[0].version}: the demo runs from the wheel", *lines]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
