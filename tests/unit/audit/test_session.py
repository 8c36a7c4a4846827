"""A cache gives back what was put in, or nothing."""

import json
import random

import pytest

from asrnorm.audit.session import ResultCache
from asrnorm.core.errors import StorageError


def test_a_line_cut_off_by_a_kill_is_passed_over_and_swallows_nothing(tmp_path):
    path = tmp_path / "out" / "ledger.jsonl"
    cache = ResultCache(path)
    cache.put("a", "clean", {"x": 1})
    cache.put("a", "fog", 0.5)
    path.write_bytes(path.read_bytes()[:-10])
    again = ResultCache(path)
    assert (again.get("a", "clean"), again.get("a", "fog"), again.get("b", "clean")) == ({"x": 1}, None, None)
    again.put("a", "fog", 0.25)
    assert ResultCache(path).get("a", "fog") == 0.25


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"ledger.jsonl: Not a directory"):
        ResultCache(tmp_path / "file" / "ledger.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        ResultCache(tmp_path / "folder")


def test_without_a_file_results_stay_in_memory():
    cache = ResultCache(None)
    cache.put("a", "clean", 1)
    assert cache.get("a", "clean") == 1


def test_a_changed_line_is_never_believed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    values = {"clean": {"scores": {"accuracy": 0.75, "bins": [[3, 2, 0.5]]}, "guesses": [0, 1]}, "fog": 0.5, "pgd": 1}
    cache = ResultCache(path)
    for part, value in values.items():
        cache.put("a", part, value)
    content, rng = path.read_bytes(), random.Random(0)
    lost = 0
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 5))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(changed)
        for part, value in values.items():
            found = ResultCache(path).get("a", part)
            assert found is None or json.dumps(found) == json.dumps(value)
            lost += found is None
    assert lost > 1000


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"key": [], "part": {}, "value": 1}',
        b'{"key": "a", "part": "fog", "value": 1}',
        b'{"key": "a", "part": "fog", "value": 1, "checksum": ""}',
        b"\xff\xfe",
        b"9" * 10_000,
    ],
)
def test_a_line_of_another_form_is_ignored(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(line)
    cache = ResultCache(path)
    assert cache.get("a", "fog") is None
    cache.put("a", "fog", 0.5)
    assert ResultCache(path).get("a", "fog") == 0.5
