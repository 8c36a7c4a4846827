"""`<suite>.best`: all parts together, for a suite or your own images; the values are in `best.yaml`."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from asrnorm.core.config import RunConfig, override
from asrnorm.core.reading import read_yaml
from asrnorm.recipes.base import RECIPES, Names, build_entry
from asrnorm.recipes.erm import SUITES, pacs_steps_per_epoch

FILE = Path(__file__).with_name("best.yaml")


@cache
def _read() -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = read_yaml(FILE)
    return values


def _build(suite: str, **domains: Names) -> RunConfig:
    """Return the config at the paper's scale."""
    values = dict(_read()[suite])
    config = replace(SUITES[suite].erm(values.pop("norm"), **domains), recipe=f"{suite}.best")
    if "epochs" in values:
        given, batch = config.suite.args, values["batch_size"]
        epoch = pacs_steps_per_epoch(given.get("source"), given.get("target"), batch)
        steps = values.pop("epochs") * epoch
        values |= {"steps": steps, "log_every": epoch, "checkpoint_every": steps}  # a run takes seconds on a GPU
    return override(config, values)


for _suite in ("cifar10c", "digits", "folder", "pacs"):
    _entry = build_entry(SUITES[_suite], partial(_build, _suite))
    _entry.__doc__ = "Strong augmentation, consistency between views, averaged weights and a norm."
    RECIPES.register(f"{_suite}.best")(_entry)
