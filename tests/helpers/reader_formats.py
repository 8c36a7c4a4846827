"""One small valid file of every format that the data readers take, to be damaged: reader, bytes, name, check."""

import bz2
import gzip
import io
import pickle

import numpy as np
from scipy.io import savemat

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
