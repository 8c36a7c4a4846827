"""What the page on installing names is there: extras, versions, targets of make, files, commands."""

import re
import tomllib
from pathlib import Path

import asrnorm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_is_on_the_page_and_no_other():
    named = {extra for group in re.findall(r"\[([a-z,]+)\]'|asrnorm\[([a-z,]+)\]", PAGE) for extra in group if extra}
    assert {extra for group in named for extra in group.split(",")} == set(PROJECT["optional-dependencies"])


def test_the_versions_are_those_of_the_package():
    (torch,) = (one for one in PROJECT["dependencies"] if one.startswith("torch"))
    assert f"Python {PROJECT['requires-python'].replace('>=', '>= ')} and {torch.replace('>=', ' >= ')}" in PAGE
    assert set(re.findall(r"asrnorm-(\d[\d.]*)-py3", PAGE)) == {asrnorm.__version__}


def test_targets_of_make_and_files_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", PAGE)) <= targets
    assert all((ROOT / file).is_file() for file in re.findall(r"requirements/\w+\.txt", PAGE))
