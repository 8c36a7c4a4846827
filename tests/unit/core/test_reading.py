"""Hostile JSON, YAML and pickles are one line, soon, and in little memory."""

import io
import math
import os
import pickle

import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.core.reading import check_pickle, parse_json, parse_yaml, read_bytes, read_json, read_yaml


def test_json_values_are_read_as_they_are():
    values = parse_json('{"a": [1, -2.5, null, true, "ü"], "b": {"c": 9223372036854775807}, "d": -1e-400}')
    assert values == {"a": [1, -2.5, None, True, "ü"], "b": {"c": 2**63 - 1}, "d": 0.0}
    assert math.isnan(parse_json(b"NaN"))
    assert parse_json("[" * 60 + "]" * 60)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 400,
        "9" * 5000,
        str(2**63),
        "-1" + "0" * 30,
        "1e400",
        "[" * 100 + "]" * 100,
        "[" * 1_000_000,
        '{"a":' * 2000 + "1" + "}" * 2000,
        "{",
        "",
        b"\xff\xfe{}",
    ],
)
def test_hostile_json_is_one_line(text):
    with pytest.raises(InputError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "9" * 400,
        "a: " + ":".join(["59"] * 5000),  # a sexagesimal number
        "a: " + ":".join(["59"] * 5000) + ".5",
        "a: !!python/object/apply:os.system [x]",
        "a: !!timestamp x",
        "a: !!bool x",
        "a: !!binary x",
        "- " * 5000 + "x",
        "[" * 2000,
        "a: &a [*a]",
        "a: 1\na: 2",
        "x" * (5 << 20),
        "{a: 1",
        "a: 2024-02-30",
        "a: \x00",
    ],
)
def test_hostile_yaml_is_one_line(text):
    with pytest.raises(InputError) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


def test_yaml_values_are_read_as_pyyaml_reads_them():
    text = "a: [1, 0x10, 010, 1_000, 1:30, 2.5, .inf, ~, yes, 'x']\nb: {c: \"d\"}\ne: |\n  text\n"
    assert parse_yaml(text) == {
        "a": [1, 16, 8, 1000, 90, 2.5, math.inf, None, True, "x"],
        "b": {"c": "d"},
        "e": "text\n",
    }
    assert parse_yaml("") is None


def test_devices_pipes_and_large_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(bytes(11))
    for name in ("pipe", "zero"):
        with pytest.raises(InputError, match="a device or a pipe"):
            read_bytes(tmp_path / name)
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_bytes(tmp_path / "large", 10)
    assert read_bytes(tmp_path / "large", 11) == bytes(11)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none")
    with pytest.raises(InputError, match="null byte"):
        read_json(tmp_path / "a\0b")


def test_an_open_pipe_is_read():
    ours, theirs = os.pipe()
    os.write(theirs, b"a: 1")
    os.close(theirs)
    from pathlib import Path

    try:
        assert read_yaml(Path(f"/dev/fd/{ours}")) == {"a": 1}
    finally:
        os.close(ours)


def doubling(depth):
    """A pickle of a few hundred bytes whose one key has 2 ** depth elements."""
    tuples = b"".join(b"h%c" % i + b"h%c" % i + b"\x86q%c" % (i + 1) for i in range(depth))
    return b"\x80\x02}" + b")q\x00" + tuples + b"K\x01s."


@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "zip"])
def test_a_pickle_that_takes_forever_to_hash_is_refused(wrap):
    data = doubling(60)
    assert len(data) < 500
    if wrap:
        import zipfile

        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", data)
        data = buffer.getvalue()
    with pytest.raises(InputError, match="tuples"):
        check_pickle(io.BytesIO(data))


def test_what_torch_saves_passes():
    shared = (0.9, 0.999)
    state = {f"layer{i}.weight": torch.zeros(3, 2) for i in range(50)}
    values = {"state": state, "groups": [{"betas": shared, "lr": 0.1} for _ in range(500)], "n": torch.Size((2, 3))}
    for legacy in (False, True):
        buffer = io.BytesIO()
        torch.save(values, buffer, _use_new_zipfile_serialization=not legacy)
        check_pickle(buffer)
        assert buffer.tell() == 0
    check_pickle(io.BytesIO(pickle.dumps(values["groups"])))
    check_pickle(io.BytesIO(b"no pickle"))
