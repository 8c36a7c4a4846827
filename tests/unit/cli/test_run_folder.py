"""What commands on finished runs share."""

import os

import pytest
import typer

from asrnorm.cli.options import check_place, find_kept, open_run, read_assignments
from asrnorm.core.errors import InputError, StorageError, UnknownNameError, WrongCallError


def test_settings_are_names_and_text_and_the_last_of_a_name_counts():
    words = ["suite.root=/a=b", "norm=bn", "norm=bn_test"]
    assert read_assignments(words, ["suite", "norm"]) == {"suite.root": "/a=b", "norm": "bn_test"}


@pytest.mark.parametrize("word", ["norm", "=bn", ""])
def test_a_word_without_a_name_or_a_value_is_a_wrong_call(word):
    with pytest.raises(typer.BadParameter, match="not of the form name=value"):
        read_assignments([word], ["norm"])


def test_a_setting_that_the_command_cannot_change_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'norm'"):
        read_assignments(["nrom.eps=1"], ["norm", "suite"])


def test_what_is_no_run_says_what_it_lacks(tmp_path):
    with pytest.raises(WrongCallError, match="no such run folder; asrnorm train makes one"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(WrongCallError, match=r"not the folder of a run, it has no config\.yaml"):
        open_run(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(WrongCallError, match="a file, not the folder of a run"):
        open_run(tmp_path / "config.yaml")
    with pytest.raises(InputError, match=r"the run is not done, it has no model\.safetensors"):
        open_run(tmp_path)
    (tmp_path / "divergence.json").touch()
    with pytest.raises(InputError, match=r"the run diverged, as divergence\.json says, and has no model"):
        open_run(tmp_path)


def test_kept_results_are_those_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_kept() is None
    (tmp_path / "results").mkdir()
    assert find_kept().resolve() == tmp_path / "results"


def test_a_place_for_a_file_is_made_and_a_folder_is_none(tmp_path):
    check_place(tmp_path / "a" / "b" / "scores.json")
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(InputError, match=r"a folder; give --json a file, such as .*scores\.json"):
        check_place(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Not a directory|File exists"):
        check_place(tmp_path / "file" / "scores.json")


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.cli.options.os.access", lambda place, mode: not mode & os.W_OK)
    with pytest.raises(StorageError, match="nothing can be written in its folder; give --json another place"):
        check_place(tmp_path / "scores.json")
