"""`make dist`: the archives state valid metadata, and the wheel runs the demo in a clean environment."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from asrnorm import __version__
from tools.check_dist import find_archives, install, read_metadata, run_demo, time_start

ROOT = Path(__file__).parents[2]


def write_wheel(path, metadata):
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("toy-1.0.dist-info/METADATA", metadata)
    return path


def test_metadata_is_read_and_an_invalid_field_is_refused(tmp_path):
    good = write_wheel(tmp_path / "good.whl", "Metadata-Version: 2.4\nName: toy\nVersion: 1.0\n")
    assert read_metadata(good).name == "toy"
    bad = write_wheel(tmp_path / "bad.whl", "Metadata-Version: 2.4\nName: toy\nVersion: one\n")
    with pytest.raises(ExceptionGroup):
        read_metadata(bad)


@pytest.mark.slow
@pytest.mark.network
def test_the_wheel_runs_the_demo_in_a_clean_environment(tmp_path):
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    wheel, source = find_archives(tmp_path / "dist")
    found = [read_metadata(archive) for archive in (wheel, source)]
    assert [str(metadata.version) for metadata in found] == [__version__] * 2
    assert found[0].description == found[1].description
    program = install(wheel, tmp_path / "environment")
    assert run_demo(program, tmp_path / "work").stat().st_size > 10_000
    assert time_start(program) > 0
