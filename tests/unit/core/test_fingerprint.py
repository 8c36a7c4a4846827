"""Hashes outlive new fields: each says which value means what runs did before it was there."""

import dataclasses

import pytest

from asrnorm.core.config import Choice, OptimConfig, RunConfig, content_hash, first_difference, override, to_mapping
from asrnorm.core.hashing import ADDED, UNHASHED, digest

# The fields of the first kept results; later ones stand in `ADDED`.
FIRST = {"recipe", "scale", "seed", "suite", "model", "norm", "method", "optim", "steps", "batch_size", "weights"}
FIRST |= {"layers", "augment", "shuffle", "selection", "evaluate_every", "evaluate_batch", "evaluate_limit"}
FIRST |= {"precision", "adversarial"}
FIRST_OPTIM = {"name", "lr", "momentum", "nesterov", "weight_decay", "decay_lambdas", "schedule", "step_at"}
FIRST_OPTIM |= {"step_factor", "gate_lr"}


def make(**changes):
    choices = {name: Choice(name=name) for name in ("suite", "model", "norm", "method")}
    return RunConfig(**{"recipe": "x", "optim": OptimConfig(), "steps": 5, "batch_size": 2, **choices, **changes})


def test_every_later_field_says_what_runs_did_before_it():
    later = {field.name for field in dataclasses.fields(RunConfig)} - FIRST - set(UNHASHED)
    later |= {f"optim.{field.name}" for field in dataclasses.fields(OptimConfig) if field.name not in FIRST_OPTIM}
    assert later == set(ADDED)


def test_the_hash_of_a_config_is_that_of_one_that_has_no_later_field():
    values = to_mapping(make())
    assert set(values) == FIRST | set(UNHASHED) | {"calibrate", "confine", "reestimate"}
    for path in ADDED:
        *parents, name = path.split(".")
        del (values[parents[0]] if parents else values)[name]
    assert digest(values) == content_hash(make())


@pytest.mark.parametrize("path", ADDED)
def test_a_later_field_that_is_used_changes_the_hash_and_the_difference_shows_both_values(path):
    before = ADDED[path]
    used = override(make(), {path: not before if isinstance(before, bool) else 3})
    assert content_hash(used) != content_hash(make())
    assert content_hash(override(used, {path: before})) == content_hash(make())
    assert first_difference(make(), used) == f"{path}: {before} here, {3 if before is not True else False} there"


def test_where_decoded_images_lie_is_no_other_run():
    own = make(suite=Choice(name="folder", args={"root": "/images", "size": 64}))
    streamed = override(own, {"suite.max_gigabytes": 0})
    assert content_hash(streamed) == content_hash(own)
    assert first_difference(streamed, own) is None
