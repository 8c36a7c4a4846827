import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.config import (
    Choice,
    OptimConfig,
    as_whole_number,
    content_hash,
    dump_config,
    from_mapping,
    load_config,
    match_number,
    override,
    to_mapping,
)
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.recipes import recipe
from helpers.sample_config import make

# --- override ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_another_method_comes_with_its_own_options_whatever_the_order(order):
    assignments = dict([("method", "rsda"), ("method.interval", "500")][::order])
    assert override(make(), assignments).method == Choice(name="rsda", args={"interval": 500})


def test_the_original_is_left_alone():
    config = make()
    before = to_mapping(config)
    changed = override(config, {"method.interval": 1, "optim.lr": 1.0})
    changed.suite.args["source"] = "sketch"
    assert to_mapping(config) == before


@pytest.mark.parametrize(
    ("assignments", "error", "message"),
    [
        ({"stepps": 1}, UnknownNameError, "unknown config field 'stepps'; did you mean 'steps'"),
        ({"optim.lrr": 1}, UnknownNameError, "unknown config field 'lrr'; did you mean 'lr'"),
        ({"steps.x": 1}, UnknownNameError, "'steps' has no parts"),
        ({"optim": "adam"}, InputError, r"'optim' has parts: set optim\.name, optim\.lr"),
        ({"optim.name": "adamw"}, UnknownNameError, "unknown value 'adamw'; did you mean 'adam'"),
        ({"precision": "float16"}, UnknownNameError, "unknown value 'float16'; did you mean 'bfloat16'"),
        ({"steps": "many"}, InputError, "steps must be int, not 'many'"),
        ({"steps": "1.5"}, InputError, "steps must be int, not 1.5"),
        ({"steps": "true"}, InputError, "steps must be int, not True"),
        ({"steps": "0"}, InputError, "steps must be at least 1, not 0"),
        ({"evaluate_every": "-1"}, InputError, "evaluate_every must be at least 0, not -1"),
        ({"calibrate": "-1"}, InputError, "calibrate must be at least 0, not -1"),
        ({"optim.warmup_steps": "-1"}, InputError, r"optim\.warmup_steps must be at least 0, not -1"),
        ({"optim.head_lr": "-1"}, InputError, r"optim\.head_lr must be a finite number of at least 0, not -1"),
        ({"evaluate_limit": "-1"}, InputError, "evaluate_limit must be at least 0, not -1"),
        ({"shuffle": "1"}, InputError, "shuffle must be bool, not 1"),
        ({"weights": "no"}, InputError, "weights must be text or null, not False"),
        ({"device": "0"}, InputError, "device must be str, not 0"),
        ({"method": "5"}, InputError, "name must be str, not 5"),
        ({"optim.lr": "fast"}, InputError, "lr must be float, not 'fast'"),
        ({"optim.lr": "-1"}, InputError, r"optim\.lr must be a finite number of at least 0, not -1"),
        ({"optim.lr": ".nan"}, InputError, r"optim\.lr must be a finite number"),
        ({"optim.weight_decay": ".inf"}, InputError, r"optim\.weight_decay must be a finite number"),
        ({"optim.nesterov": "true", "optim.momentum": "0"}, InputError, r"optim\.nesterov needs momentum"),
        ({"optim.step_at": "24"}, InputError, r"optim\.step_at is a share of the steps"),
        ({"method.penalty": ".inf"}, InputError, r"args\.penalty must be a finite number"),
        ({"method.x": {1, 2}}, InputError, r"args\.x must be text, a number, a list or null"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(assignments, error, message):
    with pytest.raises(error, match=message) as caught:
        override(make(), assignments)
    assert "\n" not in str(caught.value)


# --- to and from files ------------------------------------------------------------------------------------------------


def write(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "config",
    [
        make(),
        make(
            weights="weights/übung no.pth", suite=Choice(name="folder", args={"root": "~/ima: ges", "source": "2020"})
        ),
        make(optim=OptimConfig(lr=1e-8, weight_decay=5e-4), method=Choice(name="x", args={"a": 1e-30, "b": None})),
        make(suite=Choice(name="folder", args={"source": "no", "target": "1", "when": "2020-01-01", "size": [3, 4]})),
    ],
)
def test_a_stored_config_reads_back_as_itself(tmp_path, config):
    assert load_config(write(tmp_path, dump_config(config))) == config


@given(
    st.dictionaries(
        st.text("abc_", min_size=1),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_any_option_survives_yaml_and_keeps_its_hash(args):
    config = from_mapping(to_mapping(make(method=Choice(name="x", args=args))))
    again = from_mapping(yaml.safe_load(dump_config(config)))
    assert again == config
    assert content_hash(again) == content_hash(config)


def test_a_number_with_an_exponent_may_be_written_by_hand(tmp_path):
    text = dump_config(make()).replace("lr: 0.004", "lr: 4e-3").replace("interval: 100", "interval: 100\n    a: 1e-1")
    config = load_config(write(tmp_path, text))
    assert config.optim.lr == 0.004
    assert config.method.args["a"] == 0.1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps: 330", "steps: soon", "steps must be int, not 'soon'"),
        ("steps: 330\n", "", "missing 1 required keyword-only argument: 'steps'"),
        ("steps: 330", "step: 330", "unknown field 'step'; did you mean 'steps'"),
        ("args: {}", "args: []", r"args must be a mapping of names to values, not \[\]"),
        ("args: {}", "args:", "args must be a mapping of names to values, not None"),
        ("args: {}", "args: {1: 2}", "args must be a mapping of names to values"),
        ("version: v1", "version: 2020-01-01", r"version must be text, .* quote it if it is text"),
        ("weights: null", "weights: 5", "weights must be text or null, not 5"),
        ("name: pacs\n", "name: pacs\n  arg: {}\n", "unknown field 'arg'; did you mean 'args'"),
        ("recipe: pacs.rsc_asr", "- recipe", "not YAML"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path, old, new, message):
    text = dump_config(make())
    assert old in text
    path = write(tmp_path, text.replace(old, new, 1))
    with pytest.raises((InputError, UnknownNameError), match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1\n- 2\n", "just text\n"])
def test_a_file_without_fields_holds_no_config(tmp_path, text):
    with pytest.raises(InputError, match="holds no config"):
        load_config(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no such config file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        load_config(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not YAML"):
        load_config(tmp_path / "binary.yaml")


def test_configs_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().steps = 1


@pytest.mark.parametrize("name", ["01", "2020", "on", "1.5"])
def test_a_domain_that_reads_as_a_number_stays_a_name(name):
    changed = override(recipe("folder.erm_bn", source="a"), {"suite.source": name, "suite.target": name})
    assert (changed.suite.args["source"], changed.suite.args["target"]) == (name, name)


@pytest.mark.parametrize("text", ["2024", "1e3", "on", "01"])
def test_domains_and_folders_may_be_called_like_numbers(text, tmp_path):
    named = {"suite.source": text, "suite.target": f"{text},x", "suite.root": f"/{text}"}
    config = override(make(), named)
    expected = {"source": text, "target": f"{text},x", "root": f"/{text}"}
    assert {name: config.suite.args[name] for name in expected} == expected
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config
    assert override(make(), {"suite.root": text}).suite.args["root"].endswith(f"/{text}")


def test_a_relative_root_is_that_of_the_folder_in_which_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = override(make(), {"suite.root": "line/../photos"})
    assert config.suite.args["root"] == str(tmp_path / "photos")
    assert override(make(), {"suite.root": str(tmp_path / "photos")}) == config


def test_up_from_a_link_is_where_the_system_goes(tmp_path):
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    config = override(make(), {"suite.root": str(tmp_path / "link" / ".." / "photos")})
    assert config.suite.args["root"] == str(tmp_path / "real" / "photos")
    kept = override(make(), {"suite.root": str(tmp_path / "link" / "photos")})
    assert kept.suite.args["root"] == str(tmp_path / "link" / "photos"), "a link without a way up keeps its name"


def test_a_share_of_the_steps_may_be_none_or_all_of_them():
    assert [OptimConfig(step_at=share).step_at for share in (0.0, 1.0)] == [0.0, 1.0]
    for share in (-0.01, 1.01, float("nan")):
        with pytest.raises(InputError, match="step_at"):
            OptimConfig(step_at=share)


@pytest.mark.parametrize("name", ["../../evil", "/etc/x", "a\0b", ".hidden", "", "a b", "x" * 10 + "/"])
def test_a_recipe_that_is_no_name_of_a_folder_is_refused(name):
    with pytest.raises(InputError, match="recipe must be a name of letters"):
        dataclasses.replace(make(), recipe=name)


def test_aliases_are_refused_before_they_grow(tmp_path):
    rows = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10))]
    path = write(tmp_path, "\n".join(rows))
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: has a YAML alias (*name); write its value out"


def test_brackets_beyond_reason_are_counted_in_the_line(tmp_path):
    path = write(tmp_path, "layers: " + "[" * 2000)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert "2,000 brackets" in str(caught.value)


@pytest.mark.parametrize("value", ["2024-02-30", "9" * 5000, "[" * 900, "[" * 1_000_000])
def test_what_yaml_cannot_make_a_value_of_is_one_line_in_a_file_and_text_on_the_command_line(tmp_path, value):
    with pytest.raises(InputError) as caught:
        load_config(write(tmp_path, f"layers: {value}"))
    assert "\n" not in str(caught.value)
    assert override(make(), {"layers": value}).layers == value


def test_a_key_that_is_a_list_is_one_line(tmp_path):
    path = write(tmp_path, "? [steps]\n: 3\n? [steps]\n: 4\n")
    with pytest.raises(InputError, match=r"config\.yaml: not YAML \(.*unhashable key"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: 3\nseed: 1\nsteps: 9\n", "line 3 gives 'steps' a second time"),
        ("optim:\n  lr: 1\n  lr: 2\n", "line 3 gives 'lr' a second time"),
        ("suite: {name: folder, args: {root: a, root: b}}\n", "line 1 gives 'root' a second time"),
        ("layers:\n- {a: 1, a: 2}\n", "line 2 gives 'a' a second time"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(tmp_path, text, told):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {told}"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("steps", "500", 500),
        ("steps", "1e3", 1000),
        ("steps", "2000.0", 2000),
        ("seed", "-1", -1),
        ("shuffle", "false", False),
        ("compile", "yes", True),
        ("precision", "bfloat16", "bfloat16"),
        ("weights", "weights/r18.pth", "weights/r18.pth"),
        ("weights", "null", None),
        ("weights", "", None),
        ("weights", "C:/r18.pth", "C:/r18.pth"),
        ("device", "cuda:1", "cuda:1"),
        ("scale", "smoke", "smoke"),
    ],
)
def test_text_takes_the_type_of_its_field(path, text, expected):
    value = getattr(override(make(), {path: text}), path)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "0.0001", "1.0e-4", "+1e-4"])
def test_a_learning_rate_may_be_written_in_any_way(text):
    assert override(make(), {"optim.lr": text}).optim.lr == 1e-4


def test_a_whole_number_becomes_a_float_where_the_field_is_one():
    lr = override(make(), {"optim.lr": "1"}).optim.lr
    assert (lr, type(lr)) == (1.0, float)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("method.interval", "1e3", 1000),  # as the int that stands there
        ("method.batch_share", "1", 1.0),  # as the float that stands there
        ("method.version", "v3", "v3"),
        ("method.clip", "true", True),
        ("method.new", "7", 7),
        ("method.new", "1e-2", 0.01),
        ("method.new", "[8, 16]", [8, 16]),
        ("method.new", "2020-01-01", "2020-01-01"),  # YAML's date
        ("method.new", "12:30", "12:30"),  # YAML's 750 seconds
        ("method.new", "key: value", "key: value"),  # YAML's mapping
        ("method.new", "nan", "nan"),
        ("method.new", "*star", "*star"),  # YAML's alias of nothing
        ("method.new", "@at", "@at"),
    ],
)
def test_options_of_a_choice_are_read_as_meant(path, text, expected):
    value = override(make(), {path: text}).method.args[path.partition(".")[2]]
    assert value == expected
    assert type(value) is type(expected)


def test_values_that_are_no_text_are_taken_as_they_are():
    config = override(make(), {"steps": 7, "weights": Path("a/b.pth"), "method.new": (1, 2)})
    assert (config.steps, config.weights, config.method.args["new"]) == (7, "a/b.pth", [1, 2])


def test_a_number_of_numpy_is_a_number():
    assert type(override(make(), {"seed": np.int64(3)}).seed) is int
    assert override(make(), {"seed": np.int64(3)}).seed == 3


def test_numbers_of_other_libraries_and_types_become_those_of_the_field():
    assert as_whole_number(np.int64(7), "the seed") == 7
    with pytest.raises(TypeError):
        as_whole_number(7.0, "the seed")
    converted = match_number(1000, 2e3), match_number(1.0, 5), match_number(None, 5), match_number(True, 1)
    assert [(type(value), value) for value in converted] == [(int, 2000), (float, 5.0), (int, 5), (int, 1)]
    with pytest.raises(InputError):
        match_number(1.0, 10**400)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("pacs", "pacs"),
        ("[pacs]", "pacs"),
        ("[{name: pacs}]", "pacs"),
        ("[]", "none"),
        ("[none, pacs, none]", "pacs"),
        ("[pacs, {name: edges, share: 1e-1}]", ["pacs", {"name": "edges", "share": 0.1}]),
    ],
)
def test_a_chain_has_one_form_in_which_it_is_stored_and_hashed(given, stored):
    config = override(make(), {"augment": given})
    assert config.augment == stored
    assert content_hash(config) == content_hash(override(make(), {"augment": stored}))
    assert from_mapping(yaml.safe_load(dump_config(config))) == config


@pytest.mark.parametrize("value", ["3", "[3]", "[{share: 1}]", "[{name: 3}]", "{name: pacs}"])
def test_what_is_no_chain_is_refused(value):
    with pytest.raises(InputError):
        override(make(), {"augment": value})
