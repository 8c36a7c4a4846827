"""Mutated files: every reader returns a consistent result or raises one InputError line, and takes little memory."""

import bz2
import gzip
import io
import pickle
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from asrnorm.core.errors import InputError
from asrnorm.data.folder_listing import list_images
from asrnorm.data.readers import (
    open_npy,
    read_cifar_binary,
    read_cifar_python,
    read_digit_mat,
    read_idx,
    read_listing,
    read_usps,
)
from helpers.published import idx_bytes, noise, python2_pickle, usps_text

MAX_MEMORY = 48 << 20


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def mat_bytes(*, compress):
    stream = io.BytesIO()
    values = {"X": noise(32, 32, 3, 2), "y": np.array([[10], [3]], np.uint8)}
    savemat(stream, values, do_compression=compress)
    return stream.getvalue()


def check_digits(result):
    images, labels = result
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert len(images) == len(labels) > 0
    assert labels.min() >= 0
    assert labels.max() <= 9


def check_entries(result):
    assert result
    assert all(".." not in name.split("/") and label in range(1, 8) for name, label in result)


def check_samples(result):
    assert all(sample.key and sample.label and sample.domain for sample in result)


def nothing(result):
    assert result is not None


LISTING = b"photo/dog/1.jpg 1\nphoto/cat/2.jpg 7\n"
TABLE = b"path,label,domain\na/1.png,dog,photo\na/2.png,cat,art\n"
LINES = b'{"path": "1.png", "label": 3, "domain": "art"}\n{"path": "2.png", "label": "b", "domain": "art"}\n'
BATCH = {b"data": noise(2, 3072), b"labels": [1, 2]}

FORMATS = {
    "idx": (lambda p: read_idx(p, ndim=3), idx_bytes(noise(3, 4, 5)), "x-idx3-ubyte", nothing),
    "idx.gz": (lambda p: read_idx(p, ndim=1), gzip.compress(idx_bytes(noise(9))), "x-idx1-ubyte.gz", nothing),
    "libsvm": (read_usps, usps_text(2)[0], "usps.t", check_digits),
    "libsvm.bz2": (read_usps, bz2.compress(usps_text(2)[0]), "usps.t.bz2", check_digits),
    "cifar.bin": (read_cifar_binary, bytes([3]) + bytes(3072), "test_batch.bin", check_digits),
    "cifar.py2": (read_cifar_python, python2_pickle(noise(1, 3072), [4]), "test_batch", check_digits),
    "cifar.py3": (read_cifar_python, pickle.dumps(BATCH, protocol=2), "test_batch", check_digits),
    "cifar.py4": (read_cifar_python, pickle.dumps(BATCH, protocol=4), "test_batch", check_digits),
    "mat": (read_digit_mat, mat_bytes(compress=True), "test_32x32.mat", check_digits),
    "mat.plain": (read_digit_mat, mat_bytes(compress=False), "test_32x32.mat", check_digits),
    "npy": (open_npy, npy_bytes(noise(4, 5)), "fog.npy", nothing),
    "listing": (lambda p: read_listing(p, labels=range(1, 8)), LISTING, "photo_train_kfold.txt", check_entries),
    "csv": (list_images, TABLE, "table.csv", check_samples),
    "jsonl": (list_images, LINES, "table.jsonl", check_samples),
}


@st.composite
def mutations(draw, data):
    """A few edits, more often near the start, where the headers are."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        reach = draw(st.sampled_from([16, 64, len(mutated) or 1]))
        at = draw(st.integers(0, max(0, min(reach, len(mutated)) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "delete", "insert", "huge", "repeat"]))
        if kind == "set":
            mutated[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "cut":
            del mutated[at:]
        elif kind == "delete":
            del mutated[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            mutated[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "huge":
            mutated[at : at + 4] = draw(st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"9999"]))
        else:
            mutated[at:at] = mutated[at : at + 16]
    return bytes(mutated)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_unharmed_file_is_read(kind, tmp_path):
    read, data, name, check = FORMATS[kind]
    (tmp_path / name).write_bytes(data)
    check(read(tmp_path / name))


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_mutated_file_gives_a_result_or_one_line(kind, data):
    read, valid, name, check = FORMATS[kind]
    mutated = data.draw(mutations(valid))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(mutated)
        message = None
        tracemalloc.start()
        try:
            check(read(path))
        except InputError as error:
            message = str(error)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert message is None or (name in message and "\n" not in message)
        assert peak < MAX_MEMORY
