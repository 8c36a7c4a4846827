"""What `asrnorm evaluate` leaves in a run's folder."""

import numpy as np
import pytest
import typer

from asrnorm.cli.evaluate import check_free, check_name, keep_statistics
from asrnorm.cli.main import main
from asrnorm.core.config import Choice, content_hash, override
from asrnorm.core.errors import StorageError, WrongCallError
from asrnorm.core.results import read_result
from asrnorm.studies.store import find_results
from asrnorm.training import run
from helpers import tiny_run
from helpers.tiny_run import tiny_config


@pytest.fixture
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


def make(folder, **changes):
    config = tiny_config(steps=6, evaluate_limit=12, **changes)
    return config, run(config, folder)


def test_the_same_config_gives_the_result_of_the_run(tmp_path, toys, capsys):
    _, result = make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 0
    again = read_result(tmp_path / "a" / "evaluations" / "again.json")
    assert (again.source, again.domains, again.config_hash) == (result.source, result.domains, result.config_hash)
    assert (again.commit, again.num_parameters, again.steps) == (result.commit, result.num_parameters, result.steps)


def test_a_result_that_is_damaged_is_told_before_anything_is_scored(tmp_path, toys, capsys):
    make(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text("{")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 1
    (line,) = capsys.readouterr().err.splitlines()  # and none of a domain that was scored
    assert "result.json: damaged" in line


def test_another_norm_and_batch_are_kept_under_their_own_hash(tmp_path, toys, capsys):
    config, result = make(tmp_path / "a")
    (tmp_path / "a" / "evaluations").mkdir()
    (tmp_path / "a" / "evaluations" / ".bn_test-5.json.4711").touch()  # of a process that was killed
    words = ["--set", "norm=bn_test", "--set", "evaluate_batch=5", "--as", "bn_test-5"]
    assert main(["evaluate", str(tmp_path / "a"), *words]) == 0
    assert [path.name for path in (tmp_path / "a" / "evaluations").iterdir()] == ["bn_test-5.json"]
    kept = read_result(tmp_path / "a" / "evaluations" / "bn_test-5.json")
    assert kept.config_hash == content_hash(override(config, {"norm": "bn_test", "evaluate_batch": 5}))
    assert kept.source.num_samples == result.source.num_samples == 12
    assert kept.source.nll != result.source.nll
    assert result.validation
    assert not kept.validation  # measured with the norm of the run, not with this one


def test_a_name_kept_with_other_settings_is_refused_and_the_same_ones_may_replace_it(tmp_path, toys, capsys):
    make(tmp_path / "a")
    path = tmp_path / "a" / "evaluations" / "k1.json"
    words = ["evaluate", str(tmp_path / "a"), "--as", "k1", "--set"]
    assert main([*words, "evaluate_limit=9"]) == 0
    before = path.read_bytes()
    capsys.readouterr()
    assert main([*words, "evaluate_limit=6"]) == 2
    (line,) = capsys.readouterr().err.splitlines()  # and none of a domain that was scored
    assert line == (f"asrnorm: --as k1: {path} was made with other settings; choose another name, or --renew it")
    assert path.read_bytes() == before
    assert main([*words, "evaluate_limit=9"]) == 0
    assert main([*words, "evaluate_limit=4", "--renew"]) == 0
    assert read_result(path).source.num_samples == 4
    path.write_text("{")  # damaged
    assert main([*words, "evaluate_limit=6"]) == 0
    assert read_result(path).source.num_samples == 6


def test_to_renew_nothing_is_a_wrong_call(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--renew"]) == 2
    assert "give --as too" in capsys.readouterr().err


def test_a_name_is_free_for_its_own_settings_alone(tmp_path, toys, capsys):
    config, _ = make(tmp_path / "a")
    check_free(tmp_path / "a", "again", config)
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 0
    check_free(tmp_path / "a", "again", override(config, {"device": "cpu"}))  # which changes no number
    check_free(tmp_path / "a", "other", override(config, {"evaluate_batch": 5}))
    with pytest.raises(WrongCallError, match=r"^--as again: .*again\.json was made with other settings; "):
        check_free(tmp_path / "a", "again", override(config, {"evaluate_batch": 5}))


def test_without_a_name_all_images_are_scored_and_nothing_is_kept(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "30"
    assert not (tmp_path / "a" / "evaluations").exists()
    assert main(["evaluate", str(tmp_path / "a"), "--set", "evaluate_limit=6"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "6"


def test_the_statistics_are_written_and_removed_with_the_run(tmp_path, toys, capsys):
    config, _ = make(tmp_path / "a", norm=Choice(name="asr"))
    assert main(["evaluate", str(tmp_path / "a"), "--statistics"]) == 0
    path = tmp_path / "a" / "analyses" / "statistics.npz"
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["mu_first"].shape == (36, 6)  # twelve of each, as the run itself was scored on
        assert sorted(set(arrays["domain"].tolist())) == ["dark", "noisy", "plain"]
    assert [entry.name for entry in path.parent.iterdir()] == ["statistics.npz"]
    run(config, tmp_path / "a", fresh=True)
    assert not path.exists()


def test_statistics_of_a_run_without_asr_are_refused_in_one_line(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--statistics"]) == 1
    assert "no layer of this model learns its standardization" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../up", "", ".hidden", "a b", "a/b"])
def test_a_name_that_is_no_file_name_is_a_wrong_call(name):
    with pytest.raises(typer.BadParameter):
        check_name(name)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "analyses").write_text("a file")
    with pytest.raises(StorageError, match=r"statistics\.npz: "):
        keep_statistics(tmp_path, {"a": np.zeros(1)})


def test_an_evaluation_has_the_edition_of_its_own_test_images(tmp_path, toys, capsys, monkeypatch):
    make(tmp_path / "runs" / "a")
    monkeypatch.setattr(tiny_run.ToySuite, "edition", property(lambda self: "generated, seed 7"))
    assert main(["evaluate", str(tmp_path / "runs" / "a"), "--set", "evaluate_batch=5", "--as", "again"]) == 0
    found = find_results(tmp_path / "runs").results.values()
    assert {one.scored_again: one.result.origin.get("edition") for one in found} == {
        False: None,
        True: "generated, seed 7",
    }
