"""A study of toy runs for the command line: `asrnorm reproduce toys --scale smoke --import helpers.toy_study`.

Importing it registers the toys, a recipe for each of two norms, and the study.
"""

import time

import torch

from asrnorm.recipes import RECIPES
from asrnorm.studies import STUDIES, Cell, Measure, Row, RunSpec, Study
from helpers import tiny_run
from helpers.tiny_run import Choice, tiny_config

NORMS = ("bn", "asr")
STEPS = 16


class Paced(tiny_run.ToyNoise):
    """Takes its time, so that a machine can be killed in the middle of a run."""

    def loss(self, model, batch):
        time.sleep(0.05)
        return super().loss(model, batch)


def toy_recipe(norm, scale):
    method = Choice(name="toy_paced")
    norm = Choice(name=norm)
    return tiny_config(recipe=f"toy.paced_{norm.name}", scale=scale, norm=norm, method=method, steps=STEPS, log_every=1)


def toy_study():
    measure = Measure(quantity="accuracy", domains=())
    rows = [
        Row(label=norm, cells={"Avg.": Cell(measure=measure, runs=(RunSpec(recipe=f"toy.paced_{norm}"),))})
        for norm in NORMS
    ]
    return Study(name="toys", title="Toys", caption="Toys", columns=("Avg.",), rows=tuple(rows), seeds=1, suite="toy")


if "toys" not in STUDIES:
    torch.set_num_threads(1)
    if "toy" not in tiny_run.SUITES:
        tiny_run.install()
    tiny_run.METHODS.register("toy_paced")(Paced)
    for name in NORMS:
        RECIPES.register(f"toy.paced_{name}")(lambda *, scale="paper", norm=name: toy_recipe(norm, scale))
    STUDIES.register("toys")(toy_study)
