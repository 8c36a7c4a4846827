import bz2
import json
import struct

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from asrnorm.core.errors import InputError
from asrnorm.data.fetch.catalog import find_set
from asrnorm.data.fetch.content import (
    CLASSES,
    digit_mat,
    mnist_m_folder,
    mnist_m_labels,
    npy_images,
    pacs_domain,
    resnet18_keys,
    usps_rows,
)


def usps_text(rows, label="3", value="-1.000"):
    return "\n".join(f"{label} " + " ".join(f"{i}:{value}" for i in range(1, 257)) for _ in range(rows)) + "\n"


def test_usps_rows_are_counted(tmp_path):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(usps_text(5).encode()))
    assert usps_rows(path, rows=5).startswith("5 digits")
    with pytest.raises(InputError, match="5 rows, 6 expected"):
        usps_rows(path, rows=6)


@pytest.mark.parametrize(
    "text", ["11 1:0", usps_text(1, label="0"), usps_text(1, value="2"), "x y", "", "1 1:nan", "ü"]
)
def test_other_text_is_refused(tmp_path, text):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(text.encode()))
    with pytest.raises(InputError, match=r"usps\.bz2"):
        usps_rows(path, rows=1)


def test_every_cut_of_a_usps_file_is_refused(tmp_path):
    whole = bz2.compress(usps_text(50).encode())
    path = tmp_path / "usps.bz2"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            usps_rows(path, rows=50)


def test_a_mat_file_is_read_and_its_shape_compared(tmp_path):
    path = tmp_path / "test_32x32.mat"
    good = {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.array([[1], [2], [3], [10]], np.uint8)}
    savemat(path, good, do_compression=True)
    assert digit_mat(path, images=4).startswith("4 images")
    for bad in ({"X": good["X"]}, {**good, "X": good["X"][..., :3]}, {**good, "X": good["X"].astype(float)}):
        savemat(path, bad)
        with pytest.raises(InputError, match=r"test_32x32\.mat"):
            digit_mat(path, images=4)


def test_every_cut_of_a_mat_file_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), np.uint8)
    savemat(path, {"y": np.ones((4, 1), np.uint8), "X": pixels}, do_compression=True)
    whole = path.read_bytes()
    for end in range(0, len(whole) - 8, 499):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            digit_mat(path, images=4)


def test_a_mat_file_that_crashes_other_readers_is_a_line(tmp_path):
    path = tmp_path / "b.mat"
    savemat(path, {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.array([[10], [3], [1], [2]], np.uint8)})
    data = bytearray(path.read_bytes())
    data[184] = 154  # the type of the values of X: scipy's compiled parser ends the process at it
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"b\.mat"):
        digit_mat(path, images=4)


@pytest.fixture
def mnist_m(tmp_path):
    folder = tmp_path / "mnist_m_test"
    folder.mkdir()
    for index in range(3):
        Image.new("RGB", (32, 32)).save(folder / f"{index:08d}.png")
    (tmp_path / "mnist_m_test_labels.txt").write_text("".join(f"{i:08d}.png {i}\n" for i in range(3)))
    return folder


def test_mnist_m_is_compared_with_its_labels(mnist_m):
    labels = mnist_m.with_name("mnist_m_test_labels.txt")
    assert mnist_m_folder(mnist_m, images=3) == "3 images"
    assert mnist_m_labels(labels, images=3) == "3 labels"
    whole = (mnist_m / "00000001.png").read_bytes()
    for damaged in (b"", whole[:-5], b"text"):
        (mnist_m / "00000001.png").write_bytes(damaged)
        with pytest.raises(InputError, match=r"mnist_m_test/00000001\.png"):
            mnist_m_folder(mnist_m, images=3)
    (mnist_m / "00000001.png").unlink()
    with pytest.raises(InputError, match="missing"):
        mnist_m_folder(mnist_m, images=3)
    for text in ("a b c\n", "x.png 11\n", ""):
        labels.write_text(text)
        with pytest.raises(InputError):
            mnist_m_labels(labels, images=3)


def test_arrays_are_known_by_header_and_length(tmp_path):
    path = tmp_path / "fog.npy"
    np.save(path, np.zeros((5, 2, 2, 3), np.uint8))
    assert npy_images(path, shape=(5, 2, 2, 3)) == "generated"
    with pytest.raises(InputError, match="expected"):
        npy_images(path, shape=(6, 2, 2, 3))
    whole = path.read_bytes()
    for end in (*range(0, 128, 5), len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"fog\.npy"):
            npy_images(path, shape=(5, 2, 2, 3))
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError):
        npy_images(path, shape=(1,))


@pytest.fixture
def domain(tmp_path):
    folder = tmp_path / "photo"
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / name / "1.jpg", "WEBP")
    (tmp_path / "splits").mkdir()
    return folder


def test_a_domain_is_counted_by_class_and_compared_with_the_lists(domain):
    assert "7 images (dog 1" in pacs_domain(domain, counts=(1,) * 7)
    with pytest.raises(InputError, match="dog 1 of 2"):
        pacs_domain(domain, counts=(2, 1, 1, 1, 1, 1, 1))
    (domain.parent / "splits" / "photo_test_kfold.txt").write_text("photo/dog/1.jpg 1\nphoto/dog/2.jpg 1\n")
    with pytest.raises(InputError, match=r"1 listed files are missing, the first photo/dog/2\.jpg"):
        pacs_domain(domain, counts=(1,) * 7)
    (domain / "dog" / "1.jpg").write_bytes((domain / "dog" / "1.jpg").read_bytes()[:-3])
    with pytest.raises(InputError, match=r"dog/1\.jpg: cut short"):
        pacs_domain(domain, counts=(1,) * 7)


def test_hidden_files_are_no_images_and_a_list_of_other_letters_is_a_line(domain):
    (domain / "dog" / ".DS_Store").touch()
    assert "7 images (dog 1" in pacs_domain(domain, counts=(1,) * 7)
    (domain.parent / "splits" / "photo_test_kfold.txt").write_bytes(b"photo/d\xe9g/1.jpg 1\n")
    with pytest.raises(InputError, match=r"photo_test_kfold\.txt: not a text file in UTF-8"):
        pacs_domain(domain, counts=(1,) * 7)


def test_copies_that_a_mac_lays_into_an_archive_are_passed_over():
    pacs = find_set("pacs")
    assert pacs.place("PACS/photo/dog/056_0001.jpg") == "PACS/photo/dog/056_0001.jpg"
    assert pacs.place("PACS/photo/dog/._056_0001.jpg") is None


def resnet_tensors(running=True):
    tensors = {"conv1.weight": torch.zeros(64, 3, 7, 7), "layer4.1.conv2.weight": torch.zeros(512, 512, 3, 3)}
    if running:
        tensors |= {f"bn{i}.running_mean": torch.zeros(2) for i in range(20)} | {"fc.weight": torch.zeros(2, 2)}
    return tensors


def safetensors(tensors):
    header, data = {}, b""
    for key, value in tensors.items():
        raw = value.numpy().tobytes()
        header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_weights_say_what_they_hold(tmp_path):
    torch.save(resnet_tensors(), tmp_path / "a.pth")
    assert resnet18_keys(tmp_path / "a.pth") == "23 tensors, with running statistics, with fc"
    (tmp_path / "b.safetensors").write_bytes(safetensors(resnet_tensors(running=False)))
    assert resnet18_keys(tmp_path / "b.safetensors") == "2 tensors, without running statistics, without fc"


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_damaged_and_other_weights_are_refused(tmp_path, ending):
    path = tmp_path / f"w.{ending}"
    if ending == "pth":
        torch.save(resnet_tensors(), path)
    else:
        path.write_bytes(safetensors(resnet_tensors()))
    whole = path.read_bytes()
    other = json.dumps({"a": 1}).encode()
    for content in (b"", whole[:5], whole[:100], whole[:-1000], b"\xff" * 64, struct.pack("<Q", len(other)) + other):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"w\.{ending}"):
            resnet18_keys(path)
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "x.pth")
    with pytest.raises(InputError, match="not a ResNet-18"):
        resnet18_keys(tmp_path / "x.pth")


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    (tmp_path / "e.pth").write_bytes(pickle.dumps({"conv1.weight": Evil()}))
    with pytest.raises(InputError, match=r"e\.pth"):
        resnet18_keys(tmp_path / "e.pth")


def test_more_usps_rows_than_were_published_are_refused(tmp_path):
    row = "3 " + " ".join(f"{index}:-1" for index in range(1, 257)) + "\n"
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(row.encode() * 6))
    with pytest.raises(InputError, match="6 rows, 5 expected"):
        usps_rows(path, rows=5)


def test_weights_with_bytes_to_spare_are_refused(tmp_path):
    shapes = {"conv1.weight": [64, 3, 7, 7], "layer4.1.conv2.weight": [512, 512, 3, 3]}
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]} for name, shape in shapes.items()}
    text = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    assert resnet18_keys(path).startswith("2 tensors")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match=r"w\.safetensors: cannot be read as safetensors"):
        resnet18_keys(path)
