"""Small files in the layouts in which the data sets are published: what the readers and suites are tried on."""

import bz2
import gzip
import io
import struct
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(root, *, num_train=40, num_test=20, compress=False, folder="MNIST/raw"):
    place = Path(root) / folder
    place.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate((("train", num_train), ("t10k", num_test))):
        for kind, array in (
            ("images-idx3", noise(count, 28, 28, seed=seed)),
            ("labels-idx1", (np.arange(count) % 10).astype(np.uint8)),
        ):
            data = idx_bytes(array)
            name = f"{split}-{kind}-ubyte"
            (place / (f"{name}.gz" if compress else name)).write_bytes(gzip.compress(data, 1) if compress else data)


def write_digit_mat(path, count=20):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    labels = (np.arange(count) % 10 + 1).astype(np.uint8)
    savemat(path, {"X": noise(32, 32, 3, count), "y": labels[:, None]}, do_compression=True)


def usps_text(count=10):
    values = np.round(np.random.default_rng(1).uniform(-1, 1, (count, 256)), 3)
    lines = [
        f"{row % 10 + 1} " + " ".join(f"{i}:{v:g}" for i, v in enumerate(line, 1)) for row, line in enumerate(values)
    ]
    return ("\n".join(lines) + "\n").encode(), values


def write_usps(root, *, compress=True):
    place = Path(root) / "usps"
    place.mkdir(parents=True, exist_ok=True)
    text, _ = usps_text()
    (place / ("usps.t.bz2" if compress else "usps.t")).write_bytes(bz2.compress(text) if compress else text)


def write_mnist_m(root, count=12):
    place = Path(root) / "mnist_m" / "mnist_m_test"
    place.mkdir(parents=True, exist_ok=True)
    images = noise(count, 32, 32, 3, seed=2)
    for row, image in enumerate(images):
        Image.fromarray(image).save(place / f"{row:08d}.png")
    lines = [f"{row:08d}.png {row % 10}" for row in range(count)]
    (place.parent / "mnist_m_test_labels.txt").write_text("\n".join(lines) + "\n")
    return images


def cifar_batches(count=20):
    for number, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        yield name, noise(count, 3072, seed=number), (np.arange(count) % 10).astype(np.uint8)


def write_cifar_binary(root, count=20):
    place = Path(root) / "cifar-10-batches-bin"
    place.mkdir(parents=True, exist_ok=True)
    for name, planes, labels in cifar_batches(count):
        (place / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], planes], 1).tobytes())


def python2_pickle(planes, labels):
    """The instructions that Python 2 wrote into the published batches: text and array bytes are both plain strings."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    shape = b"".join(b"J" + struct.pack("<i", size) for size in planes.shape)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + b"\x86" + dtype + b"\x89" + text(planes.tobytes()) + b"tb"
    names = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    batch_label = text(b"batch_label") + text(b"testing batch 1 of 1")
    return b"\x80\x02}(" + batch_label + text(b"labels") + names + text(b"data") + array + b"u."


def write_cifar_python(root, count=20):
    place = Path(root) / "cifar-10-batches-py"
    place.mkdir(parents=True, exist_ok=True)
    for name, planes, labels in cifar_batches(count):
        (place / name).write_bytes(python2_pickle(planes, labels))


def write_cifar10c(root, corruptions, count=10):
    place = Path(root) / "CIFAR-10-C"
    place.mkdir(parents=True, exist_ok=True)
    np.save(place / "labels.npy", np.tile(np.arange(count) % 10, 5))
    for number, name in enumerate(corruptions):
        np.save(place / f"{name}.npy", noise(5 * count, 32, 32, 3, seed=number))


@cache
def pacs_image(number):
    """WebP under the name of a JPEG: the content decides."""
    stream = io.BytesIO()
    Image.fromarray(noise(16, 16, 3, seed=number)).resize((227, 227), 0).save(stream, "WEBP", lossless=True, method=0)
    return stream.getvalue()


def write_pacs(root, *, per_class=3, folder="PACS", lists="PACS/splits"):
    place, list_place = Path(root) / folder, Path(root) / lists
    list_place.mkdir(parents=True, exist_ok=True)
    for domain in PACS_DOMAINS:
        train, crossval = [], []
        for label, name in enumerate(PACS_CLASSES, 1):
            (place / domain / name).mkdir(parents=True)
            for number in range(per_class):
                path = f"{domain}/{name}/pic_{number:03d}.jpg"
                (place / path).write_bytes(pacs_image(number))
                (crossval if number == 0 else train).append(f"{path} {label}")
        for split, lines in (("train", train), ("crossval", crossval), ("test", crossval + train)):
            (list_place / f"{domain}_{split}_kfold.txt").write_text("\n".join(lines) + "\n")


def write_folder(root, *, domains=("art", "photo"), classes=("cat", "dog"), count=10, size=(12, 9)):
    for number, domain in enumerate(domains):
        for label, name in enumerate(classes):
            place = Path(root) / domain / name
            place.mkdir(parents=True, exist_ok=True)
            for row in range(count):
                pixels = noise(size[1], size[0], 3, seed=1000 * number + 100 * label + row)
                Image.fromarray(pixels).save(place / f"{row}.png")
