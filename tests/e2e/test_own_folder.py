"""A user's own images with one command, no code edited: train, evaluate, predict."""

import json

from asrnorm.cli.main import main


def test_train_evaluate_and_predict_on_a_folder(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    train = ["train", "folder.rsda_asr", "--scale", "smoke", "--source", "factory_a", "--out", str(run)]
    assert main([*train, "--set", f"suite.root={photos}"]) == 0, capsys.readouterr().err
    result = json.loads((run / "result.json").read_text())
    assert [domain["name"] for domain in result["domains"]] == ["factory_b"]
    assert main(["evaluate", str(run), "--json", str(tmp_path / "scores.json")]) == 0
    assert (tmp_path / "scores.json").exists()
    capsys.readouterr()
    assert main(["predict", str(run), str(photos / "factory_b" / "bad" / "0.png"), "--json", "-"]) == 0
    prediction = json.loads(capsys.readouterr().out)
    assert prediction["class"] in ("bad", "good")


def test_a_source_that_gained_an_image_is_told_before_a_run_goes_on(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    train = ["train", "folder.erm_bn", "--scale", "smoke", "--source", "factory_a", "--out", str(run)]
    train += ["--set", f"suite.root={photos}"]
    assert main(train) == 0, capsys.readouterr().err
    (run / "result.json").unlink()  # as if it had been killed
    picture = photos / "factory_a" / "good" / "0.png"
    picture.with_name("late.png").write_bytes(picture.read_bytes())
    capsys.readouterr()
    assert main(train) == 1
    assert "started with 24 source images, now there are 25" in capsys.readouterr().err
    other = picture.rename(picture.with_name("other.png"))
    picture.with_name("late.png").unlink()
    assert main(train) == 1
    assert "still 24, but with other names" in capsys.readouterr().err
    other.rename(picture)
    assert main(train) == 0, capsys.readouterr().err
