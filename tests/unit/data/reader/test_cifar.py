"""The CIFAR readers: both published forms agree, and a pickle runs nothing."""

import os
import pickle
import struct

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.reader.cifar import read_cifar_binary, read_cifar_python
from helpers.published import noise, python2_pickle


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm-was-done",)


def test_both_forms_give_the_same(write):
    planes, labels = noise(3, 3072), np.array([0, 9, 4], np.uint8)
    binary = read_cifar_binary(write(np.concatenate([labels[:, None], planes], 1).tobytes()))
    for data in (
        python2_pickle(planes, labels),
        *(pickle.dumps({b"data": planes, b"labels": labels.tolist()}, protocol=p) for p in (2, 3, 4)),
        pickle.dumps({"data": planes, "labels": labels.tolist()}, protocol=4),
    ):
        images, found = read_cifar_python(write(data))
        np.testing.assert_array_equal(images, binary[0])
        np.testing.assert_array_equal(found, binary[1])
    np.testing.assert_array_equal(binary[0][1, :, :, 2].ravel(), planes[1, 2048:])


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "0 bytes"), (bytes(3072), "3,072 bytes"), (b"\x0a" + bytes(3072), "a label is 10")],
)
def test_binary_sizes_and_labels_are_checked(write, data, message):
    with pytest.raises(InputError, match=message):
        read_cifar_binary(write(data))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "expected a dictionary"),
        ({b"labels": [1]}, "expected 'data'"),
        ({b"data": noise(1, 3071), b"labels": [1]}, "expected 'data'"),
        ({b"data": noise(1, 3072), b"labels": [1, 2]}, "expected 'labels' to be a list of 1"),
        ({b"data": noise(1, 3072), b"labels": [10]}, "a label is not between"),
        ({b"data": noise(1, 3072), b"labels": [True]}, "expected 'labels'"),
        ({b"data": np.zeros((1, 3072)), b"labels": [1]}, "does not hold bytes"),
        ({b"data": np.array([None]), b"labels": [1]}, "does not hold bytes"),
        ({b"data": np.asfortranarray(noise(2, 3072)), b"labels": [1, 2]}, "another layout"),
    ],
)
def test_pickles_with_other_content_are_refused(write, value, message):
    with pytest.raises(InputError, match=message):
        read_cifar_python(write(pickle.dumps(value, protocol=2)))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_that_a_pickle_names_is_run(write, tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"it names|it uses"):
        read_cifar_python(write(pickle.dumps({b"data": Harmful(), b"labels": []}, protocol=protocol)))
    assert not (tmp_path / "harm-was-done").exists()


def test_a_shape_that_is_larger_than_its_bytes_is_refused(write):
    data = python2_pickle(noise(1, 3072), [1]).replace(struct.pack("<i", 3072), struct.pack("<i", 2**31 - 1), 1)
    with pytest.raises(InputError, match="cannot reshape"):
        read_cifar_python(write(data))


def test_an_absurd_memo_index_is_refused(write):
    with pytest.raises(InputError, match="memo is out of order"):
        read_cifar_python(write(b"\x80\x02}r\xff\xff\xff\x7f."))


@pytest.mark.parametrize("program", [b"\x80\x02cbuiltins\neval\n.", b"\x80\x05\x96" + b"\xff" * 8 + b".", b"P1\n."])
def test_instructions_beyond_plain_data_are_refused(write, program):
    with pytest.raises(InputError, match="not a pickle of plain data"):
        read_cifar_python(write(program))
