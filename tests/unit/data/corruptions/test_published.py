"""The whole deterministic files from the real CIFAR-10 test images, against the published checksums."""

import hashlib
import io
import os
import platform
from pathlib import Path

import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.generation import published_md5, read_cifar10_test
from asrnorm.data.corruptions.severity import RANDOM, SEVERITIES

# Where the libraries round as on x86-64; jpeg_compression differs by its JPEG library.
BIT_EQUAL = frozenset(published_md5()) - RANDOM - {"jpeg_compression"}

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors may round the last bit otherwise"),
]


@pytest.fixture(scope="module")
def cifar():
    root = os.environ.get("ASRNORM_DATA")
    if not root or not (Path(root) / "cifar-10-batches-bin" / "test_batch.bin").is_file():
        pytest.skip("CIFAR-10's binary version is not under ASRNORM_DATA")
    return read_cifar10_test(root)


def start_digest(shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return hashlib.md5(header.getvalue(), usedforsecurity=False)


@pytest.mark.parametrize("name", sorted(BIT_EQUAL - {"labels"}))
def test_the_file_is_equal_to_the_published_one(name, cifar):
    digest = start_digest((50_000, 32, 32, 3))
    for severity in SEVERITIES:
        digest.update(corrupt(cifar[0], name, severity=severity))
    assert digest.hexdigest() == published_md5()[name]


def test_the_labels_are_equal_to_the_published_ones(cifar):
    digest = start_digest((50_000,))
    digest.update(np.tile(cifar[1], 5).astype(np.uint8))
    assert digest.hexdigest() == published_md5()["labels"]


def test_jpeg_harms_as_much_as_quantization_does(cifar):
    """Between libjpeg versions values differ by about one grey level; the harm itself is five to eight."""
    harm = [
        np.abs(corrupt(cifar[0][:1000], "jpeg_compression", severity=s).astype(int) - cifar[0][:1000]).mean()
        for s in SEVERITIES
    ]
    assert harm == sorted(harm)
    assert harm[0] == pytest.approx(5.3, abs=0.5)
    assert harm[4] == pytest.approx(8.0, abs=0.5)
