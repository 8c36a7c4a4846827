import pytest

from asrnorm import storage
from asrnorm.errors import InputError, StorageError
from asrnorm.training.folder import RunFolder, refuse_other, write_whole
from helpers.tiny_run import Choice, tiny_config


def test_a_write_that_fails_leaves_the_old_content_and_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_whole(path, b"old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises(StorageError, match="disk is full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    for name in (".config.yaml.4711.tmp.yaml", ".result.json.4711.tmp.json", ".config.yaml.tmp", ".result.json.4711"):
        (tmp_path / name).write_text("")
    (tmp_path / "checkpoints").mkdir()
    for name in (".last.pt.4711.tmp.pt", ".last.pt.tmp"):
        (tmp_path / "checkpoints" / name).write_text("")
    with RunFolder(tmp_path).open(tiny_config(), fresh=False):
        pass
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"config.yaml", ".lock"}


def test_lists_and_tuples_are_one_thing():
    mine, theirs = (tiny_config(steps=3, model=Choice(name="toy_net", args={"width": w})) for w in ((1, 2), [1, 2]))
    refuse_other(mine, theirs, "a")
    with pytest.raises(InputError, match="differs in steps: 3 here, 4 there"):
        refuse_other(mine, tiny_config(steps=4, model=theirs.model), "a")
