import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm.cli.data_corrupt import corrupt
from asrnorm.core.errors import InputError, UnknownNameError


@pytest.fixture
def run():
    data = typer.Typer(pretty_exceptions_enable=False)
    data.callback()(lambda: None)
    data.command("corrupt")(corrupt)
    return lambda *words: CliRunner().invoke(data, ["corrupt", *map(str, words)])


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


def test_a_folder_is_corrupted(run, photos, tmp_path):
    result = run(photos, "--out", tmp_path / "out", "--corruption", "brightness", "--severity", 3)
    assert result.exit_code == 0, result.output
    assert "1 images" in result.output
    assert (tmp_path / "out" / "dog" / "x.png").is_file()


def test_severity_zero_is_not_taken_for_the_default(run, photos, tmp_path):
    result = run(photos, "--out", tmp_path / "out", "--corruption", "brightness", "--severity", 0)
    assert isinstance(result.exception, InputError)
    assert "1, 2, 3, 4 or 5" in str(result.exception)


def test_cifar10c_is_generated_and_then_there_already(run, cifar):
    words = ("cifar10c", "--root", cifar, "--corruption", "gaussian_blur", "--workers", 1)
    result = run(*words)
    assert result.exit_code == 0, result.output
    made = np.load(cifar / "CIFAR-10-C" / "gaussian_blur.npy", mmap_mode="r")
    assert made.shape == (50_000, 32, 32, 3)
    assert "0 files written, 2 there already" in run(*words).output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cifar10c", "--severity", 3], "leave out --severity"),
        (["PHOTOS", "--corruption", "fog"], "needs --out"),
        (["PHOTOS", "--out", "x", "--corruption", "fog", "--workers", 3], "--root and --workers are of cifar10c"),
        (["PHOTOS", "--out", "x"], "needs one --corruption"),
        (["PHOTOS", "--out", "x", "--corruption", "fog", "--corruption", "snow"], "needs one --corruption"),
    ],
)
def test_wrong_calls_exit_with_two(run, photos, words, line):
    result = run(*(photos if word == "PHOTOS" else word for word in words))
    assert result.exit_code == 2
    assert line in " ".join(result.output.replace("│", " ").split())


def test_what_is_neither_cifar10c_nor_a_folder_is_named(run, tmp_path):
    result = run("cifar10", "--out", tmp_path)
    assert isinstance(result.exception, InputError)
    assert "cifar10c" in str(result.exception)


def test_an_unknown_corruption_is_answered_with_the_right_one(run, cifar):
    result = run("cifar10c", "--root", cifar, "--corruption", "fogg")
    assert isinstance(result.exception, UnknownNameError)
    assert "did you mean 'fog'" in str(result.exception)
    assert not (cifar / "CIFAR-10-C").exists()
