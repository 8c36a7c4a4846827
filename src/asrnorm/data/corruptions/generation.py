"""CIFAR-10-C from CIFAR-10: the published layout, written whole or not at all, and resumed where it stopped."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.core.files import hold_lock
from asrnorm.core.progress import PartProgress
from asrnorm.core.settings import count_cores
from asrnorm.data.corruptions.apply import corrupt, list_corruptions
from asrnorm.data.corruptions.base import CORRUPTIONS, Pixels
from asrnorm.data.corruptions.severity import NUM_IMAGES, PUBLISHED_MD5, RANDOM, SEVERITIES, choose_preset
from asrnorm.data.corruptions.weather import FROST_FOLDER
from asrnorm.data.corruptions.worker_pool import PartialArray, Piece, Run, hire, write_text

RECORD = "generated.json"
_PIECE = 500  # images: small enough for a lively bar, large enough that handing them over costs nothing
_RECORD_BYTES = 1 + 3 * 32 * 32  # of the binary version: the label, then three planes
_LIBRARIES = ("numpy", "scipy", "Pillow", "opencv-python-headless")


class GeneratedFile(NamedTuple):
    """One file of the set: `skipped` where it was there already; `published` where it equals the published one."""

    name: str
    path: Path
    md5: str
    seconds: float
    skipped: bool
    published: bool


def generate_cifar10c(
    root: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    corruptions: Iterable[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    frost: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[GeneratedFile]:
    """Write CIFAR-10-C: `<corruption>.npy`, severity s in rows (s - 1) * 10,000 and on, and `labels.npy`.

    Started again, it skips the files that are finished. A file appears under its name only when it is whole.

    Args:
        root: folder that holds `cifar-10-batches-bin`.
        out: folder to write to; made where it does not exist.
        corruptions: which; all 19 by default.
        seed: of the eleven random corruptions.
        workers: processes, one a core by default. Above one, a script needs `if __name__ == "__main__":` around the
            call, since each worker imports it.
        frost: folder or wheel with the frost photographs; by default `<root>/frost` and where `frost_pictures` looks.
        progress: show a bar, or lines where there is no terminal, on standard error.

    Raises:
        InputError: CIFAR-10 is missing or damaged, the disk is full, or `out` holds files of another seed.
        UnknownNameError: there is no such corruption.
    """
    corruptions = None if corruptions is None else list(corruptions)
    for name in corruptions or ():  # a wrong name is said before anything is read
        CORRUPTIONS[name]
    images, labels = read_cifar10_test(root)
    beside = Path(root) / FROST_FOLDER
    if frost is None and beside.is_dir():
        frost = beside
    return generate_corrupted(
        images, labels, out, corruptions=corruptions, seed=seed, workers=workers, frost=frost, progress=progress
    )


def generate_corrupted(
    images_nhwc: Pixels,
    labels_n: NDArray[np.uint8],
    out: str | os.PathLike[str],
    *,
    corruptions: Iterable[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    preset: str | None = None,
    frost: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[GeneratedFile]:
    """Write any set of images in the layout of CIFAR-10-C; arguments as in `generate_cifar10c` and `corrupt`.

    Raises:
        InputError: not a label from 0 to 255 for every image, or `out` holds files of another seed, preset or set.
    """
    labels_n = _check_labels(labels_n, len(images_nhwc))
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers cannot work; give 1 or more, or None for one a core")
    names = list(dict.fromkeys(corruptions)) if corruptions is not None else list(list_corruptions())
    options: dict[str, dict[str, Any]] = {"frost": {"source": str(frost)}} if frost is not None else {}
    for name in names:  # whatever a corruption lacks (a name, a library, the frost pictures) shows here, not in an hour
        corrupt(images_nhwc[:1], name, preset=preset, **options.get(name, {}))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    record = _Record(folder / RECORD, seed, _digest(images_nhwc, labels_n, preset))
    number = len(images_nhwc) * len(SEVERITIES)
    targets = {name: PartialArray(folder / f"{name}.npy", (number, *images_nhwc.shape[1:])) for name in names}
    finished = {name for name, target in targets.items() if target.is_finished()}
    for name in sorted({*finished, "labels"}):
        record.check(name)
    waiting = len(names) - len(finished)
    workers = min(workers or count_cores(), max(1, waiting * number // _PIECE))
    files = []
    with (
        PartProgress(waiting * number, "images", shown=progress) as bar,
        hire(images_nhwc, workers if waiting else 1) as run,
    ):
        files.append(_write_labels(PartialArray(folder / "labels.npy", (number,)), labels_n, record))
        for name, target in targets.items():
            bar.begin(name)
            started = time.perf_counter()
            if name not in finished:
                pieces = _pieces(target, name, len(images_nhwc), seed, preset, options.get(name, {}))
                _fill(target, pieces, run, bar)
            files.append(record.enter(name, target.path, time.perf_counter() - started, skipped=name in finished))
            bar.say(_describe(files[-1]))
    return files


def read_cifar10_test(root: str | os.PathLike[str]) -> tuple[Pixels, NDArray[np.uint8]]:
    """Return CIFAR-10's test images, `(10000, 32, 32, 3)`, and labels from the binary version.

    Raises:
        InputError: the file is missing or has another length.
    """
    path = Path(root) / "cifar-10-batches-bin" / "test_batch.bin"
    if not path.is_file():
        raise InputError(f"{path} is missing: run asrnorm data fetch cifar10, or unpack cifar-10-binary.tar.gz there")
    if path.stat().st_size != NUM_IMAGES * _RECORD_BYTES:
        raise InputError(f"{path} has {path.stat().st_size} bytes, not {NUM_IMAGES * _RECORD_BYTES}: fetch it again")
    records = np.fromfile(path, np.uint8).reshape(NUM_IMAGES, _RECORD_BYTES)
    images_nchw = records[:, 1:].reshape(NUM_IMAGES, 3, 32, 32)
    return np.ascontiguousarray(images_nchw.transpose(0, 2, 3, 1)), records[:, 0].copy()


def _pieces(
    target: PartialArray, name: str, number: int, seed: int, preset: str | None, options: dict[str, Any]
) -> list[Piece]:
    return [
        Piece(
            target, (severity - 1) * number + start, name, severity, start, min(start + _PIECE, number), seed,
            preset, options,
        )
        for severity in SEVERITIES
        for start in range(0, number, _PIECE)
    ]  # fmt: skip


def _fill(target: PartialArray, pieces: list[Piece], run: Run, bar: PartProgress) -> None:
    with target.filling():
        for count in run(pieces):
            bar.advance(count)


def _write_labels(target: PartialArray, labels_n: NDArray[np.uint8], record: "_Record") -> GeneratedFile:
    skipped = target.is_finished()
    if not skipped:
        with target.filling():
            target.write_rows(0, np.tile(labels_n, len(SEVERITIES)))
    return record.enter("labels", target.path, 0.0, skipped=skipped)


def _check_labels(labels_n: NDArray[Any], number: int) -> NDArray[np.uint8]:
    labels = np.asarray(labels_n)
    if labels.shape != (number,) or labels.dtype.kind not in "iuf" or not np.equal(labels, np.floor(labels)).all():
        raise InputError(f"{number} images need as many whole numbers for labels, not {labels.dtype} {labels.shape}")
    if number and not 0 <= labels.min() <= labels.max() <= 255:
        raise InputError(f"labels must be from 0 to 255, not {labels.min()} to {labels.max()}")
    return labels.astype(np.uint8)


def _digest(images_nhwc: Pixels, labels_n: NDArray[np.uint8], preset: str | None) -> str:
    """Return what tells a set of images, and the severities that they get, from another."""
    shape = images_nhwc.shape
    digest = hashlib.sha256(f"{shape} {preset or choose_preset(*shape[1:3])}".encode())
    for array in (images_nhwc, labels_n):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _describe(file: GeneratedFile) -> str:
    how = "there already" if file.skipped else f"{file.seconds:.1f} s"
    return f"{file.name}: {how}{', equal to the published file' if file.published else ''}"


class _Record:
    """`generated.json`: which seed and which libraries made the files of a folder, and their checksums."""

    def __init__(self, path: Path, seed: int, images: str = "") -> None:
        self.path, self.seed, self.images = path, seed, images
        self.files = self._read()

    def _read(self) -> dict[str, Mapping[str, Any]]:
        try:
            return dict(json.loads(self.path.read_text())["files"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.path} cannot be read: remove it, or use another folder") from None

    def check(self, name: str) -> None:
        """Refuse a file of another set of images, or another seed; older records do not tell of which set."""
        if self.files.get(name, {}).get("images", self.images) != self.images:
            raise InputError(
                f"{self.path.parent / name}.npy was made of other images, labels or severities: use another folder"
            )
        made_with = self.files.get(name, {}).get("seed", self.seed)
        if name in RANDOM and made_with != self.seed:
            raise InputError(
                f"{self.path.parent / name}.npy was made with seed {made_with}, not {self.seed}: "
                "use that seed, or another folder"
            )

    def enter(self, name: str, path: Path, seconds: float, *, skipped: bool) -> GeneratedFile:
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if not skipped:
            # Another process may have made other corruptions meanwhile.
            with hold_lock(self.path.with_name(f".{self.path.name}.lock")):
                entry = {"md5": md5, "seed": self.seed, "images": self.images} | _versions()
                self.files = self._read() | {name: entry}
                write_text(self.path, json.dumps({"schema": 1, "files": self.files}, indent=1) + "\n")
        elif self.files.get(name, {}).get("md5", md5) != md5:
            raise InputError(f"{path} has changed since it was generated: remove it, and run again")
        return GeneratedFile(name, path, md5, seconds, skipped, md5 == PUBLISHED_MD5.get(name))


def _versions() -> dict[str, str]:
    found = {"machine": platform.machine()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # another build of OpenCV, as a rule
            found[library] = "unknown"
    return found
