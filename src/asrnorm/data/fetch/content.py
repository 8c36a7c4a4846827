"""What is in a file whose bytes differ from the published ones: recompressed, converted or generated copies.

Each function returns one phrase for the table of `check`, or raises `InputError` with what is wrong.
"""

import bz2
import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, first_line
from asrnorm.data.readers import read_digit_mat, read_listing

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
MAX_TEXT = 256 << 20


def usps_rows(path: Path, rows: int) -> str:
    """Check a LIBSVM text of 16x16 digits: `rows` lines, labels 1..10, 256 values in [-1, 1]."""
    try:
        with bz2.open(path) as stream:
            lines = stream.read(MAX_TEXT).decode("ascii").splitlines()
        for line in lines:
            label, *pairs = line.split()
            values = [float(pair.partition(":")[2]) for pair in pairs]
            if not 1 <= int(label) <= 10 or len(values) != 256 or not all(-1 <= v <= 1 for v in values):
                raise ValueError("a row is not a label 1..10 and 256 values in [-1, 1]")
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path.name}: {error or 'cut short'}") from error
    if len(lines) != rows:
        raise InputError(f"{path.name}: {len(lines)} rows, {rows} expected")
    return f"{rows} digits; not the published bytes"


def digit_mat(path: Path, images: int) -> str:
    """Check a MATLAB file with `X` (32, 32, 3, images) of uint8 and `y` (images, 1) in 1..10."""
    _, labels = read_digit_mat(path)
    if len(labels) != images:
        raise InputError(f"{path.name}: {len(labels):,} images, {images:,} expected")
    return f"{images} images; not the published bytes"


def mnist_m_labels(path: Path, images: int) -> str:
    """Check a list of MNIST-M labels: `images` lines of a file name and a digit."""
    names = _read_labels(path)
    if len(names) != images:
        raise InputError(f"{path.name}: {len(names)} labelled images, {images} expected")
    return f"{images} labels"


def mnist_m_folder(path: Path, images: int) -> str:
    """Check the folder of one MNIST-M split against its list of labels, which lies beside it."""
    names = _read_labels(path.with_name(path.name + "_labels.txt"))
    _check_images(path, names)
    if len(names) != images:
        raise InputError(f"{path.name}: {len(names)} labelled images, {images} expected")
    return f"{images} images"


def _read_labels(path: Path) -> set[str]:
    try:
        rows = [line.split() for line in path.read_text("ascii").splitlines() if line.strip()]
        return {name for name, label in rows if label in tuple("0123456789")}
    except (OSError, ValueError) as error:
        raise InputError(f"{path.name}: {first_line(error)}") from error


def npy_images(path: Path, shape: tuple[int, ...]) -> str:
    """Check a `.npy` file by its header and length: uint8, C order, this shape."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        found = (array.shape, str(array.dtype))
    except Exception as error:  # np.load raises anything on damaged files
        raise InputError(f"{path.name}: cannot be read as .npy ({first_line(error)})") from error
    if found != (shape, "uint8"):
        raise InputError(f"{path.name}: {found[0]} {found[1]}, {shape} uint8 expected")
    return "generated"


def pacs_domain(path: Path, counts: tuple[int, ...]) -> str:
    """Check one domain of PACS: so many images of each class, and every file that the kfold lists name."""
    found = []
    for name in CLASSES:
        folder = path / name
        entries = folder.iterdir() if folder.is_dir() else ()
        files = {entry.name for entry in entries if entry.is_file() and not entry.name.startswith(".")}
        _check_images(folder, files)
        found.append(len(files))
    if tuple(found) != counts:
        wrong = [f"{n} {have} of {want}" for n, have, want in zip(CLASSES, found, counts, strict=True) if have != want]
        raise InputError(f"{path.name}: {', '.join(wrong)}")
    lists = sorted((path.parent / "splits").glob(f"{path.name}_*_kfold.txt"))
    listed = {name for file in lists for name, _ in read_listing(file, labels=range(1, len(CLASSES) + 1))}
    if absent := [name for name in sorted(listed) if not (path.parent / name).is_file()]:
        raise InputError(f"{path.name}: {len(absent)} listed files are missing, the first {absent[0]}")
    by_class = ", ".join(f"{name} {count}" for name, count in zip(CLASSES, found, strict=True))
    return f"{sum(found)} images ({by_class})" + ("" if lists else "; no kfold lists to compare with")


def resnet18_keys(path: Path) -> str:
    """Check that a weight file holds a ResNet-18 backbone, and say what else it has."""
    shapes = _safetensors_shapes(path) if path.suffix == ".safetensors" else _torch_shapes(path)
    kinds = Counter(key.rpartition(".")[2] for key in shapes)
    if shapes.get("conv1.weight") != (64, 3, 7, 7) or shapes.get("layer4.1.conv2.weight") != (512, 512, 3, 3):
        raise InputError(f"{path.name}: not a ResNet-18 with torchvision's key names")
    running = "with" if kinds["running_mean"] == 20 else "without"
    head = "with" if "fc.weight" in shapes else "without"
    return f"{len(shapes)} tensors, {running} running statistics, {head} fc"


def _safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, 100 << 20):
                raise ValueError("header longer than the file")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max(entry["data_offsets"][1] for entry in header.values())
        if end != size:
            raise ValueError(f"{size} bytes, {end} expected")
        return {key: tuple(entry["shape"]) for key, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise InputError(f"{path.name}: cannot be read as safetensors ({first_line(error)})") from error


def _torch_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    import torch

    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        return {key: tuple(value.shape) for key, value in state.items()}
    except Exception as error:  # torch.load raises anything on damaged files
        raise InputError(f"{path.name}: cannot be read as PyTorch weights ({first_line(error)})") from error


def _check_images(folder: Path, names: set[str]) -> None:
    for name in sorted(names):
        problem = _image_problem(folder / name)
        if problem:
            raise InputError(f"{folder.name}/{name}: {problem}")


def _image_problem(path: Path) -> str:
    """What is wrong with an image file, by its first and last bytes; images are decoded by whoever uses them."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(16)
            stream.seek(max(0, size - 12))
            tail = stream.read()
    except OSError as error:
        return "missing" if isinstance(error, FileNotFoundError) else first_line(error)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "" if b"IEND" in tail else "cut short"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "" if size >= 8 + int.from_bytes(head[4:8], "little") else "cut short"
    return "" if head.startswith((b"\xff\xd8\xff", b"GIF8", b"BM")) else "not an image"
