import json
import platform
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from asrnorm.data.fetch import catalog
from asrnorm.data.fetch.array_check import EXACT
from asrnorm.data.fetch.check import check_set
from asrnorm.data.fetch.checksum import compute
from asrnorm.data.fetch.content import npy_images

PUBLISHED = ("contrast.npy", "fog.npy")


@pytest.fixture
def arrays(tmp_path):
    """CIFAR-10-C with arrays of two images, of which two are "published"."""
    small = []
    for file in catalog.find_set("cifar10c").layouts[0]:
        shape = (2,) if file.name == "labels.npy" else (2, 32, 32, 3)
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.full(shape, 7, np.uint8))
        digest = compute(path, ["md5"])["md5"] if file.name in PUBLISHED else file.digest
        small.append(replace(file, size=None, digest=digest, content=partial(npy_images, shape=shape)))
    return replace(catalog.find_set("cifar10c"), layouts=(tuple(small),))


def record(folder, machine="x86_64"):
    files = {
        path.stem: {"md5": compute(path, ["md5"])["md5"].partition(":")[2], "seed": 5, "machine": machine}
        for path in sorted(folder.glob("*.npy"))
    }
    (folder / "generated.json").write_text(json.dumps({"schema": 1, "files": files}))


def details(root, entry):
    return {row.file.split("/")[1].removesuffix(".npy"): (row.state, row.detail) for row in check_set(root, entry)}


@pytest.mark.parametrize(("machine", "words"), [("x86_64", "pinned library"), ("aarch64", "within one grey level")])
def test_generated_arrays_are_told_from_published_ones(arrays, tmp_path, machine, words):
    record(tmp_path / "CIFAR-10-C", machine)
    rows = details(tmp_path, arrays)
    assert {state for state, _ in rows.values()} == {"present"}
    assert rows["contrast"][1] == "generated, deterministic, equal to the published array (MD5)"
    assert rows["snow"][1] == "generated with seed 5; random, so like the published one in distribution only"
    assert rows["brightness"][1].startswith("generated, deterministic; ")
    assert words in rows["brightness"][1]
    assert "libjpeg" in rows["jpeg_compression"][1]


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"files": 3}', '{"files": {"snow": 3}}'])
def test_without_a_record_equal_arrays_are_published_and_others_unknown(arrays, tmp_path, monkeypatch, content):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    if content is not None:
        (tmp_path / "CIFAR-10-C" / "generated.json").write_text(content)
    rows = details(tmp_path, arrays)
    assert rows["fog"] == ("present", "equal to the published array (MD5)")
    assert rows["snow"][1].startswith("not the published array, nor recorded")
    assert "on arm64 equal to the published one within one grey level" in rows["zoom_blur"][1]


def test_an_array_that_changed_after_its_generation_is_damaged(arrays, tmp_path):
    record(tmp_path / "CIFAR-10-C")
    np.save(tmp_path / "CIFAR-10-C" / "snow.npy", np.full((2, 32, 32, 3), 8, np.uint8))
    assert details(tmp_path, arrays)["snow"][0] == "damaged"


def test_a_published_array_fetched_over_a_generated_one_is_published(arrays, tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    whole = (folder / "fog.npy").read_bytes()
    np.save(folder / "fog.npy", np.full((2, 32, 32, 3), 9, np.uint8))
    record(folder)
    (folder / "fog.npy").write_bytes(whole)
    assert details(tmp_path, arrays)["fog"] == ("present", "equal to the published array (MD5)")


def test_a_cut_array_is_damaged(arrays, tmp_path):
    path = tmp_path / "CIFAR-10-C" / "snow.npy"
    path.write_bytes(path.read_bytes()[:-1])
    assert details(tmp_path, arrays)["snow"][0] == "damaged"


def test_eight_files_can_be_met_to_the_bit():
    names = {file.name.removesuffix(".npy") for file in catalog.find_set("cifar10c").files()}
    assert len(EXACT) == 8
    assert names >= EXACT
    assert len(names) == 20
