import dataclasses

import pytest

from asrnorm.core import hashing
from asrnorm.core.config import Choice, OptimConfig, RunConfig, content_hash, first_difference, override, to_mapping
from asrnorm.core.hashing import ADDED, digest
from helpers.sample_config import make


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "cuda:1"},
        {"compile": True},
        {"checkpoint_every": 7},
        {"log_every": 7},
        {"lambda_every": 7},
        {"suite": Choice(name="pacs", args={"source": "photo", "root": "/elsewhere"})},
        {"method": Choice(name="rsc", args={"batch_share": 0.5, "clip": False, "version": "v1", "interval": 100.0})},
    ],
)
def test_what_changes_no_number_changes_no_hash_and_is_no_difference(changes):
    assert content_hash(make(**changes)) == content_hash(make())
    assert first_difference(make(**changes), make()) is None


def test_weights_of_the_data_folder_are_known_by_their_name_and_others_by_their_path():
    a, b, c = (make(weights=path) for path in ("r18.pth", "weights/r18.pth", "weights/r50.pth"))
    assert len({content_hash(a), content_hash(b), content_hash(c)}) == 3, "three files"
    assert first_difference(b, c) == "weights: 'r18.pth' here, 'r50.pth' there"
    assert first_difference(a, b) == "weights: './r18.pth' here, 'r18.pth' there"
    assert content_hash(make(weights="./r18.pth")) == content_hash(a)
    mine, same, other = (make(weights=path) for path in ("/a/last.pth", "/b/../a/last.pth", "/b/last.pth"))
    assert content_hash(mine) == content_hash(same) != content_hash(other)
    assert first_difference(mine, other) == "weights: '/a/last.pth' here, '/b/last.pth' there"


@pytest.mark.parametrize("suite", ["folder", "a_suite_of_ones_own"])
def test_a_users_images_are_known_by_their_folder(suite):
    a, b = (make(suite=Choice(name=suite, args={"root": root})) for root in ("/mine", "/yours"))
    assert content_hash(a) != content_hash(b)
    assert first_difference(a, b) == "suite.args.root: '/mine' here, '/yours' there"


HASHED = {
    "recipe": "other",
    "scale": "smoke",
    "seed": 1,
    "suite": Choice(name="digits"),
    "model": Choice(name="resnet50"),
    "norm": Choice(name="bn"),
    "method": Choice(name="erm"),
    "optim": OptimConfig(lr=0.005),
    "steps": 331,
    "batch_size": 64,
    "weights": "w.pth",
    "layers": "all",
    "calibrate": 1,
    "reestimate": 1,
    "average": Choice(name="ema"),
    "blocks": "mixstyle",
    "confine": 1,
    "adapt": "slow",
    "augment": "pacs",
    "shuffle": False,
    "selection": "oracle",
    "selection_ties": "last",
    "fold": "values",
    "evaluate_every": 1,
    "evaluate_batch": 1,
    "evaluate_limit": 1,
    "precision": "float64",
    "adversarial": True,
}
UNHASHED = {"device", "compile", "capture", "checkpoint_every", "log_every", "lambda_every"}


def test_every_field_is_either_hashed_or_not_on_purpose():
    assert {field.name for field in dataclasses.fields(RunConfig)} == set(HASHED) | UNHASHED


@pytest.mark.parametrize("name", HASHED)
def test_what_changes_numbers_changes_the_hash_and_is_named(name):
    changed = make(**{name: HASHED[name]})
    assert content_hash(changed) != content_hash(make())
    difference = first_difference(make(), changed)
    assert difference is not None
    assert difference.startswith(name)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(OptimConfig)])
def test_every_field_of_the_optimizer_is_hashed(name):
    other = {"name": "adam", "schedule": "step"}.get(name)
    value = getattr(OptimConfig(), name)
    if other is None:
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value / 2 + 0.01
    changed = make(optim=dataclasses.replace(OptimConfig(lr=0.004), **{name: other}))
    assert content_hash(changed) != content_hash(make())
    assert first_difference(make(), changed).startswith(f"optim.{name}: ")


def test_the_hash_is_the_same_on_every_machine_and_day():
    assert content_hash(make()) == "1662df4305"


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ({"a": 1}, {"a": 2}, "method.args.a: 1 here, 2 there"),
        ({"a": None}, {}, "method.args.a: None here, absent there"),
        ({}, {"a": None}, "method.args.a: absent here, None there"),
        ({"a": True}, {"a": 1}, "method.args.a: True here, 1 there"),
        ({"a": 1.0}, {"a": 1}, None),
        ({"a": (1, 2)}, {"a": [1, 2]}, None),
    ],
)
def test_the_first_difference_names_the_option_and_both_values(mine, theirs, expected):
    a, b = (make(method=Choice(name="x", args=args)) for args in (mine, theirs))
    assert first_difference(a, b) == expected
    assert (content_hash(a) == content_hash(b)) == (expected is None)


# The fields of the first kept results; later ones stand in `ADDED`.
FIRST = {"recipe", "scale", "seed", "suite", "model", "norm", "method", "optim", "steps", "batch_size", "weights"}
FIRST |= {"layers", "augment", "shuffle", "selection", "evaluate_every", "evaluate_batch", "evaluate_limit"}
FIRST |= {"precision", "adversarial"}
FIRST_OPTIM = {"name", "lr", "momentum", "nesterov", "weight_decay", "decay_lambdas", "schedule", "step_at"}
FIRST_OPTIM |= {"step_factor", "gate_lr"}


def plain_config(**changes):
    choices = {name: Choice(name=name) for name in ("suite", "model", "norm", "method")}
    return RunConfig(**{"recipe": "x", "optim": OptimConfig(), "steps": 5, "batch_size": 2, **choices, **changes})


def test_every_later_field_says_what_runs_did_before_it():
    later = {field.name for field in dataclasses.fields(RunConfig)} - FIRST - set(hashing.UNHASHED)
    later |= {f"optim.{field.name}" for field in dataclasses.fields(OptimConfig) if field.name not in FIRST_OPTIM}
    assert later == set(ADDED)


def test_the_hash_of_a_config_is_that_of_one_that_has_no_later_field():
    values = to_mapping(plain_config())
    added = {"adapt", "average", "blocks", "calibrate", "confine", "fold", "reestimate", "selection_ties"}
    assert set(values) == FIRST | set(hashing.UNHASHED) | added
    for path in ADDED:
        *parents, name = path.split(".")
        del (values[parents[0]] if parents else values)[name]
    assert digest(values) == content_hash(plain_config())


@pytest.mark.parametrize("path", ADDED)
def test_a_later_field_that_is_used_changes_the_hash_and_the_difference_shows_both_values(path):
    before = ADDED[path]
    if isinstance(before, dict):
        path, before, after = f"{path}.name", "'none'", "'ema'"
        used = plain_config(average=Choice(name="ema"))
        assert content_hash(override(used, {"average": "none"})) == content_hash(plain_config())
    else:
        other = {
            "adapt": "slow",
            "fold": "values",
            "blocks": "mixstyle",
            "selection_ties": "last",
            "optim.step_again": 0,
        }
        after = other.get(path, not before if isinstance(before, bool) else 3)
        used = override(plain_config(), {path: after})
        assert content_hash(override(used, {path: before})) == content_hash(plain_config())
        before, after = (repr(value) if isinstance(value, str) else value for value in (before, after))
    assert content_hash(used) != content_hash(plain_config())
    assert first_difference(plain_config(), used) == f"{path}: {before} here, {after} there"


def test_where_decoded_images_lie_is_no_other_run():
    own = plain_config(suite=Choice(name="folder", args={"root": "/images", "size": 64}))
    streamed = override(own, {"suite.max_gigabytes": 0})
    assert content_hash(streamed) == content_hash(own)
    assert first_difference(streamed, own) is None


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("weights/resnet18.pth", "resnet18.pth"),
        ("/mine/a/../b/last.pth", "/mine/b/last.pth"),
        ("resnet18.pth", "./resnet18.pth"),
    ],
)
def test_weights_of_the_data_folder_are_named_by_their_file_and_others_by_their_path(path, named):
    assert hashing.decisive(to_mapping(make(weights=path)))["weights"] == named
