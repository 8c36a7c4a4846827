import pytest

from asrnorm.audit.ledger import Ledger
from asrnorm.core.errors import StorageError


def test_a_line_cut_off_by_a_kill_is_passed_over_and_swallows_nothing(tmp_path):
    path = tmp_path / "out" / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.put("a", "clean", {"x": 1})
    ledger.put("a", "fog", 0.5)
    path.write_bytes(path.read_bytes()[:-10])
    again = Ledger(path)
    assert (again.get("a", "clean"), again.get("a", "fog"), again.get("b", "clean")) == ({"x": 1}, None, None)
    again.put("a", "fog", 0.25)
    assert Ledger(path).get("a", "fog") == 0.25


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"ledger.jsonl: Not a directory"):
        Ledger(tmp_path / "file" / "ledger.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        Ledger(tmp_path / "folder")


def test_without_a_file_results_stay_in_memory():
    ledger = Ledger(None)
    ledger.put("a", "clean", 1)
    assert ledger.get("a", "clean") == 1
