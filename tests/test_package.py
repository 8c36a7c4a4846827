"""A wheel built from the tree installs and works outside it."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    return next(folder.glob("asrnorm-*.whl"))


def test_the_wheel_holds_the_package_the_marker_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "asrnorm/py.typed" in names
    assert all(name.split("/")[0] == "asrnorm" or ".dist-info/" in name for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_imports_and_runs_outside_the_tree(wheel, tmp_path):
    # A bare environment that borrows torch and the rest from this one, but not the editable install.
    venv.create(tmp_path / "env", with_pip=False)
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    here = next(p for p in sys.path if p.endswith("site-packages"))
    script = (
        f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({here!r})\n"
        "import asrnorm, asrnorm.cli.main, torch\n"
        f"assert asrnorm.__file__.startswith({str(site)!r}), asrnorm.__file__\n"
        "print(asrnorm.ASRNorm2d(8)(torch.randn(2, 8, 4, 4)).shape)\n"
        "assert asrnorm.cli.main.main(['list', 'norms']) == 0\n"
    )
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-I", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 8, 4, 4])" in done.stdout
