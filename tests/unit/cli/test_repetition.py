"""Options given twice: refused where one value counts."""

import pytest
import yaml

from asrnorm.cli.main import main


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["train", "digits_mini.erm_bn", "--seed", "1", "--seed", "2"], "--seed"),
        (["train", "digits_mini.erm_bn", "--scale=smoke", "--dry-run", "--scale", "short"], "--scale"),
        (["evaluate", "run", "--data", "a", "--data=b"], "--data"),
        (["audit", "net.onnx", "--data", "a", "--mean", "1", "1", "1", "--data", "b"], "--data"),
        (["data", "corrupt", "photos", "--out", "a", "--out", "b"], "--out"),
        (["bench", "layers", "--json", "a", "--json", "b"], "--json"),
    ],
)
def test_the_last_value_is_not_taken_in_silence(words, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr().err == f"asrnorm: {option} is given more than once, and takes one value\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["train", "digits_mini.erm_bn", "--dry-run", "--set", "steps=3", "--set", "steps=4"],
        ["train", "digits_mini.erm_bn", "--dry-run", "--dry-run"],  # says the same
        [
            "train",
            "folder.erm_bn",
            "--dry-run",
            "--source",
            "day",
            "--source",
            "dusk",
            "--target",
            "a",
            "--target",
            "b",
        ],
        ["train", "digits_mini.erm_bn", "--dry-run", "--out", "--seed", "--seed", "1"],  # a folder called --seed
    ],
)
def test_what_may_be_given_again_is_taken(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert "more than once" not in capsys.readouterr().err


def test_several_sources_are_all_trained_on(capsys):
    assert main(["train", "folder.erm_bn", "--dry-run", "--source", "day", "--source", "dusk"]) == 0
    assert "source: day,dusk" in capsys.readouterr().out


def test_several_with_commas_of_their_own_stay_apart(capsys):
    words = ["--source", "Bern, day", "--source", "dusk", "--target", "Bern, night"]
    assert main(["train", "folder.erm_bn", "--dry-run", *words]) == 0
    suite = yaml.safe_load(capsys.readouterr().out)["suite"]["args"]
    assert (suite["source"], suite["target"]) == (["Bern, day", "dusk"], "Bern, night")


def test_help_is_shown_whatever_else_is_given(capsys):
    assert main(["train", "x", "--seed", "1", "--seed", "2", "--help"]) == 0
    assert "Example" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nothing"], ["--seed"], ["train", "--", "--seed", "--seed"]])
def test_calls_that_name_no_command_are_answered_as_ever(words, capsys):
    assert main(words) == 2
    assert "more than once" not in capsys.readouterr().err
