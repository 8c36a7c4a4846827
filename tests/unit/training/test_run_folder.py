import errno
import os
import shutil
from pathlib import Path

import pytest

from asrnorm.core import files as storage
from asrnorm.core.errors import InputError, StorageError
from asrnorm.training.run_folder import RunFolder, require_same_run, write_run_file
from helpers.tiny_run import Choice, tiny_config


def test_a_write_that_fails_leaves_the_old_content_and_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_run_file(path, b"old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises(StorageError, match="disk is full"):
        write_run_file(path, b"new")
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
    require_same_run(mine, theirs, "a")
    with pytest.raises(InputError, match="differs in steps: 3 here, 4 there"):
        require_same_run(mine, tiny_config(steps=4, model=theirs.model), "a")


def take(path, **options):
    with RunFolder(path).open(tiny_config(), **{"fresh": False, **options}):
        pass


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("config", [None, "theme: dark\n"], ids=["no config", "config of another tool"])
def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path, fresh, config):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "concert.txt").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught:
        take(tmp_path, fresh=fresh)
    line = "not the folder of a run, it holds notes.txt and no config.yaml of a run; choose another --out"
    assert str(caught.value) == f"{tmp_path}: {line}"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("fresh", [False, True])
def test_an_empty_path_is_refused(tmp_path, monkeypatch, fresh):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="--out: an empty path"):
        take(Path(), fresh=fresh)
    assert not list(tmp_path.iterdir())


def test_the_current_folder_is_taken_where_it_is_of_the_run(tmp_path, monkeypatch):
    take(tmp_path)
    monkeypatch.chdir(tmp_path)
    take(Path())


@pytest.mark.parametrize(
    "name", [".lock", ".config.yaml.4711.tmp.yaml", "env.json", "log.jsonl", "launch.yaml", "launch.log", "slurm-7.out"]
)
def test_what_an_earlier_attempt_or_a_launcher_leaves_is_taken(tmp_path, name):
    (tmp_path / name).write_text("")
    (tmp_path / "checkpoints").mkdir()
    take(tmp_path)
    assert (tmp_path / "config.yaml").exists()


def test_a_path_that_is_no_utf_8_is_refused_before_anything_is_made(tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(InputError, match="valid UTF-8"):
        take(place)
    assert not place.exists()


def test_starting_over_takes_what_was_made_of_the_old_run_with_it(tmp_path):
    take(tmp_path)
    made = [tmp_path / "export" / "model.onnx", tmp_path / "evaluations" / "bn_test-16.json"]
    for path in (*made, tmp_path / "plots" / "mine.png"):
        path.parent.mkdir()
        path.touch()
    take(tmp_path, fresh=True)
    assert not any(path.exists() for path in made)
    assert (tmp_path / "plots" / "mine.png").exists(), "not the run's own"


def test_starting_over_that_is_killed_leaves_a_folder_that_can_be_started_over(tmp_path, monkeypatch):
    take(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoints").mkdir()

    def kill(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("asrnorm.training.run_folder.shutil.rmtree", kill)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path, fresh=True)
    take(tmp_path, fresh=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_lock_that_fails_is_one_line_and_a_disk_without_locks_no_obstacle(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, "refused")

    monkeypatch.setattr("fcntl.flock", refuse)
    number = errno.ENOLCK
    with RunFolder(tmp_path / "a").open(tiny_config(), fresh=False):
        pass
    number = errno.EIO
    folder = RunFolder(tmp_path / "a")
    with pytest.raises(StorageError, match="a: refused; choose another --out"), folder.open(tiny_config(), fresh=False):
        pass


def test_a_config_that_came_to_nothing_makes_way_for_another(tmp_path):
    folder, wrong, right = RunFolder(tmp_path / "run"), tiny_config(steps=7), tiny_config(steps=8)
    with folder.open(wrong, fresh=False):
        folder.environment.write_text("{}")  # and then a wrong option stops the run
    with folder.open(right, fresh=False):
        assert "steps: 8" in folder.config.read_text()
        assert not folder.environment.exists()
    folder.log.write_text("{}\n")
    with pytest.raises(InputError, match="of another run, which differs in steps"), folder.open(wrong, fresh=False):
        pass


def test_a_folder_that_a_wrong_option_came_to_nothing_in_is_gone_and_any_other_stays(tmp_path):
    def fail(folder, *files):
        with folder.open(tiny_config(), fresh=False):
            for name in files:
                (folder.path / name).write_text("{}")
            raise InputError("suite 'folder': no such folder")

    new, begun, there = (RunFolder(tmp_path / name) for name in ("new", "begun", "there"))
    there.path.mkdir()
    for folder, files in ((new, ["env.json"]), (begun, ["log.jsonl"]), (there, [])):
        with pytest.raises(InputError, match="no such folder"):
            fail(folder, *files)
    assert not new.path.exists()
    assert begun.config.exists()
    assert there.config.exists()


def test_a_config_written_by_hand_is_never_replaced(tmp_path):
    folder, mine = RunFolder(tmp_path / "run"), tiny_config(steps=7)
    with folder.open(mine, fresh=False):
        pass
    text = "# the good one\n" + folder.config.read_text()
    folder.config.write_text(text)
    with folder.open(mine, fresh=False):
        assert folder.config.read_text() == text
    with pytest.raises(InputError, match="of another run"), folder.open(tiny_config(steps=8), fresh=False):
        pass
    assert folder.config.read_text() == text


def test_without_locks_what_may_be_another_process_s_is_left_and_one_line_warns(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / "checkpoints").mkdir()
    theirs = tmp_path / "checkpoints" / ".last.pt.4711.tmp.pt"
    theirs.write_text("")
    with RunFolder(tmp_path).open(tiny_config(), fresh=False):
        pass
    assert theirs.exists()
    assert "has no locks; start no second process on this run" in caplog.text


def test_a_folder_that_vanishes_does_not_hide_the_error(tmp_path):
    def work():
        with RunFolder(tmp_path / "a").open(tiny_config(), fresh=False):
            shutil.rmtree(tmp_path / "a")
            raise StorageError("the real one")

    with pytest.raises(StorageError, match="the real one"):
        work()
