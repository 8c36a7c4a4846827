"""`asrnorm data list`, `show` and `corrupt`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from asrnorm.cli import data
from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError
from helpers.published import write_cifar10c, write_cifar_binary, write_folder, write_mnist


def run(*words):
    return CliRunner().invoke(data.data_app, [str(word) for word in words], env={"COLUMNS": "200"})


def test_json_has_a_row_a_part(tmp_path):
    write_mnist(tmp_path, num_train=1, num_test=1)
    rows = json.loads(run("list", "--root", tmp_path, "--json", "-").output)
    states = {(row["suite"], row["part"]): row["present"] for row in rows}
    assert states["digits", "mnist"] is True
    assert states["digits", "syn"] is False
    assert states["cifar10c", "fog"] is False
    assert states["pacs", "photo"] is False
    assert {suite for suite, _ in states} == {"cifar10c", "digits", "digits_mini", "folder", "pacs"}


def test_the_table_folds_long_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    write_cifar_binary(tmp_path, count=1)
    output = run("list").output
    assert str(tmp_path) in output
    assert "gaussian_noise ... (19)" in output
    assert output.count("cifar10c") == 2  # the suite's name once, and once in what to type
    assert "asrnorm data fetch mnist" in output


@pytest.fixture
def cifar10c(tmp_path, monkeypatch):
    write_cifar_binary(tmp_path / "data")
    write_cifar10c(tmp_path / "data", ["fog", "snow"])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def test_sheets_are_written_of_the_strongest_levels_and_missing_targets_are_reported(cifar10c):
    result = run("show", "cifar10c", "--root", cifar10c, "--out", "samples")
    assert result.exit_code == 0, result.output
    names = ["overview.png", "cifar10.png", "snow-5.png", "fog-5.png"]
    assert result.stdout == f"samples: {', '.join(names)}\n"
    assert {file.name for file in Path("samples").iterdir()} == set(names)
    assert "not shown: gaussian_noise and 16 more: " in result.stderr


def test_chosen_domains_are_shown_in_a_folder_under_runs(cifar10c):
    result = run("show", "cifar10c", "--root", cifar10c, "--domain", "fog/1", "--domain", "fog/1")
    assert result.stdout == "runs/samples/cifar10c: overview.png, fog-1.png\n"
    told = json.loads(run("show", "cifar10c", "--data", cifar10c, "--domain", "fog/1", "--json", "-").stdout)
    assert told["files"] == [f"runs/samples/cifar10c/{name}.png" for name in ("overview", "fog-1")]
    assert "gaussian_noise" in told["missing"]
    assert Path("runs/samples/cifar10c/overview.png").is_file()


def test_your_own_images_are_shown(tmp_path, monkeypatch):
    write_folder(tmp_path / "own", domains=("art", "photo"))
    monkeypatch.chdir(tmp_path)
    result = run("show", "folder", "--root", "own", "--source", "photo", "--out", "samples")
    assert result.stdout == "samples: overview.png, photo.png, art.png\n"


def test_of_your_own_images_only_the_shown_are_read_and_damaged_ones_left_blank(tmp_path, monkeypatch, caplog):
    write_folder(tmp_path / "own", domains=("art", "photo"))
    for path in (tmp_path / "own" / "art").rglob("*.*"):
        path.write_bytes(b"damaged")
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    result = run("show", "folder", "--root", tmp_path / "own", "--source", "photo", "--out", tmp_path / "samples")
    assert result.exit_code == 0
    assert (tmp_path / "samples" / "art.png").is_file()
    assert "left blank: " in caplog.text
    assert not (tmp_path / "cache").exists()  # nothing is decoded for later


def test_a_file_in_place_of_the_folder_is_refused(cifar10c):
    Path("afile").write_text("my own")
    result = run("show", "cifar10c", "--root", cifar10c, "--out", "afile")
    assert isinstance(result.exception, WrongCallError)


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos" / "dog").mkdir(parents=True)
    Image.new("RGB", (20, 30), (10, 200, 90)).save(tmp_path / "photos" / "dog" / "x.jpg")
    return tmp_path / "photos"


@pytest.fixture
def cifar(tmp_path):
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(bytes(3073 * 10_000))
    return tmp_path / "data"


def test_a_folder_is_corrupted(photos, tmp_path):
    result = run("corrupt", photos, "--out", tmp_path / "out", "--corruption", "brightness", "--severity", 3)
    assert result.exit_code == 0, result.output
    assert "1 image" in result.output
    assert (tmp_path / "out" / "dog" / "x.png").is_file()
    again = run("corrupt", photos, "--out", tmp_path / "b", "--corruption", "fog", "--json", "-")
    assert json.loads(again.stdout) == {"folder": str(tmp_path / "b"), "files": [str(tmp_path / "b" / "dog" / "x.png")]}


def test_severity_zero_is_not_taken_for_the_default(photos, tmp_path):
    result = run("corrupt", photos, "--out", tmp_path / "out", "--corruption", "brightness", "--severity", 0)
    assert isinstance(result.exception, InputError)
    assert "1, 2, 3, 4 or 5" in str(result.exception)


def test_cifar10c_is_generated_once(cifar):
    words = ("corrupt", "cifar10c", "--root", cifar, "--corruption", "gaussian_blur", "--workers", 1)
    result = run(*words)
    assert result.exit_code == 0, result.output
    made = np.load(cifar / "CIFAR-10-C" / "gaussian_blur.npy", mmap_mode="r")
    assert made.shape == (50_000, 32, 32, 3)
    assert "0 files written, 2 already there" in run(*words).output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cifar10c", "--severity", 3], "--severity"),
        (["PHOTOS", "--corruption", "fog"], "needs --out"),
        (["PHOTOS", "--out", "x", "--corruption", "fog", "--workers", 3], "--data and --workers"),
        (["PHOTOS", "--out", "x"], "needs one --corruption"),
        (["PHOTOS", "--out", "x", "--corruption", "fog", "--corruption", "snow"], "needs one --corruption"),
    ],
)
def test_wrong_calls_exit_with_two(photos, words, line):
    result = run("corrupt", *(photos if word == "PHOTOS" else word for word in words))
    assert result.exit_code == 2
    assert line in " ".join(result.output.replace("│", " ").split())


def test_what_is_neither_cifar10c_nor_a_folder_is_named(tmp_path):
    result = run("corrupt", "cifar10", "--out", tmp_path)
    assert isinstance(result.exception, InputError)
    assert "cifar10c" in str(result.exception)


def test_an_unknown_corruption_is_answered_with_the_right_one(cifar):
    result = run("corrupt", "cifar10c", "--root", cifar, "--corruption", "fogg")
    assert isinstance(result.exception, UnknownNameError)
    assert "did you mean 'fog'" in str(result.exception)
    assert not (cifar / "CIFAR-10-C").exists()
