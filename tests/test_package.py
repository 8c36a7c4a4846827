"""A wheel built from the tree installs and works outside it."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from asrnorm import __version__
from asrnorm.studies import list_studies

ROOT = Path(__file__).parents[1]
# In a message 'asrnorm[data]', in a checkout '.[data]'.
EXTRA = r"'(?:asrnorm|\.)\[([\w,-]+)\]'"


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
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "asrnorm").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    templates = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "asrnorm").rglob("templates/*")}
    assert {name for name in names if "/templates/" in name} == templates != set()
    assert "asrnorm/kernels/autograd.py" in modules  # kernels are imported late, and missed late


def test_the_wheel_holds_the_kept_results_as_they_are(wheel):
    archive, prefix = zipfile.ZipFile(wheel), "asrnorm/studies/kept/"
    held = {name.removeprefix(prefix): archive.read(name) for name in archive.namelist() if name.startswith(prefix)}
    results = ROOT / "results"
    assert held == {str(path.relative_to(results)): path.read_bytes() for path in results.rglob("*") if path.is_file()}


def test_the_wheel_has_the_version_of_the_package(wheel):
    assert wheel.name.split("-")[1] == __version__


def test_the_citation_and_the_changelog_name_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    releases = re.findall(r"^## \[(.+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["version"] == __version__
    assert releases[0] == (__version__, citation["date-released"].isoformat())


def test_the_source_archive_holds_what_the_tests_and_the_docs_read(tmp_path):
    pytest.importorskip("build", reason="build makes the archive")
    pytest.importorskip("hatchling", reason="hatchling builds the archive")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a checkout: nothing to compare with")
    assert {name for name in tracked.stdout.split() if not name.startswith(".")} <= names
    assert not any("__pycache__" in name or name.startswith((".venv/", "site/", "runs/")) for name in names)


def test_the_extras_that_are_spoken_of_exist_and_the_reader_is_told_of_all():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    docs = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]

    def name(paths):
        return {name for path in paths for words in re.findall(EXTRA, path.read_text()) for name in words.split(",")}

    assert name([*docs, *(ROOT / "src").rglob("*.py")]) <= set(extras)
    assert set(extras) - {"dev", "docs"} <= name(docs)


def test_public_ci_calls_the_makefile_on_the_pythons_that_the_package_names():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {"make test", "make dist"} <= set(steps)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert {f"Programming Language :: Python :: {version}" for version in pythons} <= set(classifiers)


def test_a_commit_is_checked_by_the_tools_of_make_check():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {hook["entry"].split()[0] for hook in hooks} == {".venv/bin/ruff", ".venv/bin/codespell"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"$(BIN)/{name}" in makefile for name in ("ruff check", "ruff format", "codespell"))


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
        "from asrnorm.studies import get_study, list_studies\n"
        "print(len([get_study(name).footnotes for name in list_studies()]), 'studies')\n"
        "assert asrnorm.cli.main.main(['reproduce', 'table3', '--dry-run']) == 0\n"
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
    assert f"{len(list_studies())} studies" in done.stdout  # with their tables and notes
    assert re.search(r"(\d+) of \1 runs are done", done.stdout)  # by the kept results
