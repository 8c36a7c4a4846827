"""`<suite>.best`: all parts together, for a suite or your own images; the values are in `best.yaml`."""

from dataclasses import replace
from functools import partial

from asrnorm.core.config import RunConfig, override
from asrnorm.recipes.base import RECIPES, Names, build_entry, read_table
from asrnorm.recipes.erm import SUITES, pacs_steps_per_epoch


def _build(suite: str, **domains: Names) -> RunConfig:
    """Return the config at the paper's scale."""
    values = dict(read_table("best.yaml")[suite])
    config = replace(SUITES[suite].erm(values.pop("norm"), **domains), recipe=f"{suite}.best")
    if "epochs" in values:
        given, batch = config.suite.args, values["batch_size"]
        epoch = pacs_steps_per_epoch(given.get("source"), given.get("target"), batch)
        steps = values.pop("epochs") * epoch
        values |= {"steps": steps, "log_every": epoch, "checkpoint_every": steps}  # a run takes seconds on a GPU
    return override(config, values)


for _suite in ("cifar10c", "digits", "digits_mini", "folder", "pacs"):
    _entry = build_entry(SUITES[_suite], partial(_build, _suite))
    _entry.__doc__ = "Strong augmentation, consistency between views, averaged weights and a norm."
    RECIPES.register(f"{_suite}.best")(_entry)
