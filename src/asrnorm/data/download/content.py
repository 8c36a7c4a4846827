"""Checksums, and checks of content for copies whose bytes differ from the published ones.

A copy may be recompressed, converted or generated. Each content check returns one phrase for the table of
`asrnorm data check`, or raises `InputError` with what is wrong.
"""

import hashlib
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, count_of, first_line
from asrnorm.core.reading import check_pickle, read_json
from asrnorm.data.readers import open_npy, read_listing

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PRESENT, MISSING, DAMAGED = "present", "missing", "damaged"
GENERATED_RECORD = "generated.json"
"""Written next to generated arrays of CIFAR-10-C, with the checksum and the seed of each."""
EXACT_CORRUPTIONS = frozenset(
    ("brightness", "contrast", "defocus_blur", "gaussian_blur", "pixelate", "saturate", "zoom_blur", "labels")
)
"""Deterministic; generation gives the published bits on x86-64 with the pinned library versions."""


def checksum(path: Path, algorithm: str) -> str:
    """Return the checksum of a file as `algorithm:hex`."""
    # Many sets publish MD5 or SHA-1 only: they guard against damage here, not against an attacker.
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def algorithm_of(digest: str) -> str:
    """Return the algorithm of an `algorithm:hex` string."""
    return digest.partition(":")[0]


def matches(path: Path, digest: str) -> bool:
    """Return whether the file has this `algorithm:hex` checksum."""
    return digest.lower() == checksum(path, algorithm_of(digest))


def count_samples(path: Path, *, read: Callable[[Path], Any], count: int, noun: str = "images") -> str:
    """Check that a file which `read` turns into images and labels holds `count` of them."""
    found = len(read(path)[1])
    if found != count:
        raise InputError(f"{path.name}: {found} {noun}, {count} expected")
    return f"{count} {noun}; not the published bytes"


def mnist_m_labels(path: Path, *, images: int) -> str:
    """Check the labels of MNIST-M: `images` lines of a file name and a digit."""
    found = len(set(read_listing(path, labels=range(10))))
    if found != images:
        raise InputError(f"{path.name}: {found} labelled images, {images} expected")
    return f"{images} labels"


def mnist_m_folder(path: Path, *, images: int) -> str:
    """Check that the folder of one MNIST-M split holds the images in the list of labels next to it."""
    listing = path.with_name(f"{path.name}_labels.txt")
    mnist_m_labels(listing, images=images)
    _check_images(path, {name for name, _ in read_listing(listing, labels=range(10))})
    return f"{images} images"


def pacs_domain(path: Path, *, counts: tuple[int, ...]) -> str:
    """Check one domain of PACS: the number of images per class, and every file that the kfold lists name."""
    found = []
    for name in PACS_CLASSES:
        folder = path / name
        entries = folder.iterdir() if folder.is_dir() else ()
        files = {entry.name for entry in entries if entry.is_file() and not entry.name.startswith(".")}
        _check_images(folder, files)
        found.append(len(files))
    per_class = list(zip(PACS_CLASSES, found, counts, strict=True))
    if wrong := [f"{name} {have} of {want}" for name, have, want in per_class if have != want]:
        raise InputError(f"{path.name}: {', '.join(wrong)}")
    lists = sorted((path.parent / "splits").glob(f"{path.name}_*_kfold.txt"))
    listed = {name for file in lists for name, _ in read_listing(file, labels=range(1, len(PACS_CLASSES) + 1))}
    if absent := [name for name in sorted(listed) if not (path.parent / name).is_file()]:
        raise InputError(f"{path.name}: {count_of(len(absent), 'listed file')} missing, the first {absent[0]}")
    by_class = ", ".join(f"{name} {count}" for name, count, _ in per_class)
    return f"{sum(found)} images ({by_class})" + ("" if lists else "; no kfold lists to compare with")


def _check_images(folder: Path, names: set[str]) -> None:
    for name in sorted(names):
        if problem := _image_problem(folder / name):
            raise InputError(f"{folder.name}/{name}: {problem}")


def _image_problem(path: Path) -> str:
    """Return what is wrong with an image file by its first and last bytes; decoding all files would take minutes."""
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


def resnet18_keys(path: Path) -> str:
    """Check that a weight file holds a ResNet-18 backbone, and describe its tensors."""
    try:
        shapes = _read_shapes(path)
    except Exception as error:  # both libraries raise anything on damaged files
        raise InputError(f"{path.name}: cannot be read as weights ({first_line(error)})") from error
    kinds = Counter(key.rpartition(".")[2] for key in shapes)
    if shapes.get("conv1.weight") != (64, 3, 7, 7) or shapes.get("layer4.1.conv2.weight") != (512, 512, 3, 3):
        raise InputError(f"{path.name}: not a ResNet-18 with torchvision's key names")
    running = "with" if kinds["running_mean"] == 20 else "without"
    head = "with" if "fc.weight" in shapes else "without"
    return f"{len(shapes)} tensors, {running} running statistics, {head} fc"


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            return {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    import torch

    with path.open("rb") as file:
        check_pickle(file)
        state: Any = torch.load(file, map_location="cpu", weights_only=True)
    return {key: tuple(value.shape) for key, value in state.items()}


def cifar10c_array(path: Path, *, digest: str, shape: tuple[int, ...]) -> tuple[str, str]:
    """Return state and detail of one `.npy` file of CIFAR-10-C: published or generated, and how close to published."""
    try:
        array = open_npy(path)
    except InputError as error:
        return DAMAGED, str(error)
    if (array.shape, str(array.dtype)) != (shape, "uint8"):
        return DAMAGED, f"{path.name}: {array.shape} {array.dtype}, {shape} uint8 expected"
    name = path.name.removesuffix(".npy")
    record = read_record(path.with_name(GENERATED_RECORD)).get(name)
    md5 = checksum(path, "md5")
    recorded = record is not None and f"md5:{record.get('md5')}" == md5
    if md5 == digest:
        made = "generated, deterministic, " if recorded else ""
        return PRESENT, f"{made}equal to the published array (MD5)"
    if record is None:
        return PRESENT, f"not the published array, nor recorded as generated here; {_distance(name)}"
    if not recorded:
        return DAMAGED, "changed since it was generated (MD5): remove it and generate it again"
    how = f"generated with seed {record.get('seed')}" if is_random(name) else "generated, deterministic"
    return PRESENT, f"{how}; {_distance(name, str(record.get('machine') or ''))}"


def is_random(name: str) -> bool:
    """Return whether a corruption draws random numbers, so that only its distribution can equal the published one."""
    return name not in EXACT_CORRUPTIONS and name != "jpeg_compression"


def _distance(name: str, machine: str = "") -> str:
    machine = machine or platform.machine()
    if is_random(name):
        return "random, so like the published one in distribution only"
    if name == "jpeg_compression":
        return "libjpeg-turbo differs from the published array's libjpeg by about one grey level"
    if machine.lower() not in ("x86_64", "amd64"):
        return f"on {machine} equal to the published one within one grey level, to the bit only on x86-64"
    return "the pinned library versions give the published bits on x86-64: generate it again with those"


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a `generated.json` by array; empty if the file is missing or unreadable."""
    try:
        files = read_json(path)["files"]
        return {name: dict(entry) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
