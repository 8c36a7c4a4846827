"""The CIFAR readers: both published forms agree; a pickle runs nothing and cannot use up time or memory."""

import os
import pickle
import struct
import time

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.readers import read_cifar_binary, read_cifar_python
from helpers.published import noise, python2_pickle


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm-was-done",)


def test_both_forms_give_the_same(write):
    planes, labels = noise(3, 3072), np.array([0, 9, 4], np.uint8)
    names = [b"a.png", b"b.png", b"c.png"]
    binary = read_cifar_binary(write(np.concatenate([labels[:, None], planes], 1).tobytes()))
    for data in (
        python2_pickle(planes, labels),
        *(pickle.dumps({b"data": planes, b"labels": labels.tolist(), b"names": names}, protocol=p) for p in (2, 3, 4)),
        pickle.dumps({"data": planes, "labels": labels.tolist(), "names": names}, protocol=4),
        pickle.dumps({"data": planes, "labels": labels}, protocol=4),
    ):
        images, found = read_cifar_python(write(data))
        np.testing.assert_array_equal(images, binary[0])
        np.testing.assert_array_equal(found, binary[1])
    np.testing.assert_array_equal(binary[0][1, :, :, 2].ravel(), planes[1, 2048:])


@pytest.mark.parametrize("data", [b"", bytes(3072), b"\x0a" + bytes(3072)], ids=["empty", "short", "label 10"])
def test_binary_sizes_and_labels_are_checked(write, data):
    with pytest.raises(InputError, match="file: "):
        read_cifar_binary(write(data))


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        {b"labels": [1]},
        {b"data": noise(1, 3071), b"labels": [1]},
        {b"data": noise(0, 3072), b"labels": []},
        {b"data": noise(1, 3072), b"labels": [1, 2]},
        {b"data": noise(1, 3072), b"labels": [10]},
        {b"data": noise(1, 3072), b"labels": [-1]},
        {b"data": noise(1, 3072), b"labels": [True]},
        {b"data": noise(1, 3072), b"labels": [2**70]},
        {b"data": np.zeros((1, 3072)), b"labels": [1]},
        {b"data": np.array([None]), b"labels": [1]},
        {b"data": np.asfortranarray(noise(2, 3072)), b"labels": [1, 2]},
    ],
    ids=str,
)
def test_pickles_with_other_content_are_refused(write, value):
    with pytest.raises(InputError, match="file: "):
        read_cifar_python(write(pickle.dumps(value, protocol=2)))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_that_a_pickle_names_is_run(write, tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        read_cifar_python(write(pickle.dumps({b"data": Harmful(), b"labels": []}, protocol=protocol)))
    assert not (tmp_path / "harm-was-done").exists()


def test_a_shape_that_is_larger_than_its_bytes_is_refused(write):
    data = python2_pickle(noise(1, 3072), [1]).replace(struct.pack("<i", 3072), struct.pack("<i", 2**31 - 1), 1)
    with pytest.raises(InputError):
        read_cifar_python(write(data))


def doubling(start, double, levels=60):
    """A pickle that puts an object in memo 0, then replaces it `levels` times by one that holds it twice."""
    return b"\x80\x02}" + start + b"q\x00" + (b"h\x00" + double + b"q\x00") * levels


@pytest.mark.parametrize(
    "program",
    [
        # A tuple that holds itself twice, sixty times over: hashing it as a key would take centuries.
        doubling(b")", b"\x86") + b"K\x00s.",
        # The same, with an opcode that leaves the tuple alone before it is put into the memo.
        b"\x80\x02})(eq\x00" + b"h\x00\x86(eq\x00" * 60 + b"K\x00s.",
        b"\x80\x02}" + b")" + b"Nbq\x00" + b"h\x00\x86Nbq\x00" * 60 + b"K\x00s.",
        # Keys with equal hashes: multiples of 2**61 - 1.
        b"\x80\x02}("
        + b"".join(b"\x8a\x0b" + (k * (2**61 - 1)).to_bytes(11, "little") + b"N" for k in range(60_000))
        + b"u.",
        b"\x80\x02](" + b"N" * 300_000 + b"e.",
        b"\x80\x04\x8c\x01aq\x00" + b"h\x00h\x00\x93q\x00" * 60 + b".",
    ],
    ids=["nested tuple", "behind appends", "behind build", "equal hashes", "many opcodes", "doubled names"],
)
def test_a_pickle_cannot_use_up_time(write, program):
    start = time.monotonic()
    with pytest.raises(InputError):
        read_cifar_python(write(program))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",
        b"\x80\x02cbuiltins\neval\n.",
        b"\x80\x05\x96" + b"\xff" * 8 + b".",
        b"P1\n.",
        b"\x80\x02c_codecs\nencode\n}U\x01aK\x01sb.",
        b"\x80\x02cnumpy\ndtype\n}U\x01aK\x01sb.",
    ],
    ids=["memo index", "eval", "bytearray", "persistent id", "state of a function", "state of a class"],
)
def test_opcodes_beyond_plain_data_are_refused(write, program):
    with pytest.raises(InputError):
        read_cifar_python(write(program))
