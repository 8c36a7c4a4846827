"""The folder of a run: where its files lie, who may write them, and what to do where they cannot be written.

Whether a run's images and weights are those that it was begun with: `env.json` keeps what they are known by.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from asrnorm.core.config import RunConfig, content_hash, dump_config, first_difference, load_config
from asrnorm.core.errors import AsrnormError, InputError, StorageError
from asrnorm.core.files import DISK_FULL, describe_failure, replacing, take_lock
from asrnorm.core.results import read_result
from asrnorm.data import Suite, create_suite
from asrnorm.data.download.verify import find_weights
from asrnorm.data.image_table import to_nfc

logger = logging.getLogger("asrnorm")

_TEMPORARY = (".*.tmp*", ".result.json.*")
_OWN = ("result.json", "divergence.json", "model.safetensors", "env.json", "log.jsonl")
_OWN_FOLDERS = ("checkpoints", "pool", "events", "choice", "evaluations", "analyses", "export")
_LAUNCHER = ("launch.yaml",)  # which `asrnorm reproduce` writes before it starts a run
_LOGS = frozenset({".log", ".out", ".err"})  # where a shell, a scheduler or `asrnorm reproduce` sends what a run says


class RunFolder:
    """The files of one run.

    Args:
        path: the folder; made by `open`.
    """

    def __init__(self, path: Path) -> None:
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError:  # TensorBoard and safetensors take no others
            raise InputError(f"{str(path)!a}: a run needs a folder whose path is valid UTF-8") from None
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "env.json"
        self.log = path / "log.jsonl"
        self.events = path / "events"
        self.checkpoints = path / "checkpoints"
        self.pool = path / "pool"
        self.choice = path / "choice"
        self.model = path / "model.safetensors"
        self.result = path / "result.json"
        self.divergence = path / "divergence.json"

    def is_done(self) -> bool:
        """Tell whether there is a result; one that is damaged or lacks its model is made again of a checkpoint.

        Raises:
            InputError: a damaged result, and no checkpoint.
        """
        if not self.result.exists():
            return False
        has_checkpoint = any(self.checkpoints.glob("*.pt"))
        if not self.model.exists() and has_checkpoint:
            return False
        try:
            read_result(self.result)
        except InputError as error:
            if not has_checkpoint:
                raise InputError(f"{error}; start over with --fresh") from None
            logger.warning("%s; it is made again from the last checkpoint", error)
            return False
        return True

    @contextmanager
    def open(self, config: RunConfig, *, fresh: bool) -> Iterator[None]:
        """Make the folder and keep other processes out of it for the length of a `with` block.

        Args:
            config: what the folder is for.
            fresh: remove what an earlier run left.

        Raises:
            InputError: the folder holds another run or other things, or another process is at work in it.
            StorageError: the folder cannot be written.
        """
        with advising(self.path):
            self._refuse_foreign()
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("ab")
        with lock:
            try:
                is_alone = _take_soon(lock)
            except BlockingIOError:
                raise InputError(f"{self.path}: another process is at work on this run; let it finish") from None
            except OSError as error:
                raise StorageError(f"{describe_failure(error, self.path)}; choose another --out") from None
            if fresh:
                self.clear()
            elif self.config.exists():
                theirs = load_config(self.config)
                if content_hash(theirs) != content_hash(config) and self._came_to_nothing(theirs):
                    self.clear()
                else:
                    refuse_other(config, theirs, self.config)
            first_pass = RunFolder(self.choice)
            places = [(place.path, place.checkpoints, place.pool) for place in (self, first_pass)]
            if not is_alone:
                logger.warning("%s: its file system has no locks; start no second process on this run", self.path)
            for folder in (folder for folders in places for folder in folders if is_alone):
                for leftover in (path for pattern in _TEMPORARY for path in folder.glob(pattern)):
                    leftover.unlink(missing_ok=True)  # of a process that was killed
            if not self.config.exists():
                write_run_file(self.config, dump_config(config).encode())
            try:
                yield
            except Exception:
                with suppress(OSError):  # the folder may be gone, which is what the error is about
                    if is_new and self._came_to_nothing(config):
                        self._vanish()
                raise

    def _vanish(self) -> None:
        """Remove a folder that a wrong option would have left behind, with a config and nothing else."""
        self.clear()
        with suppress(OSError):  # somebody else's file lies in it by now
            (self.path / ".lock").unlink(missing_ok=True)
            self.path.rmdir()

    def _refuse_foreign(self) -> None:
        """Refuse, before anything is written or removed, a folder that is no run's and holds what no run leaves.

        Hidden files and single files of a run are taken: a process that was killed before its config leaves them.
        """
        if self._has_config():
            return
        if self.path == Path():  # which is what pathlib makes of an empty string
            raise InputError("--out: an empty path, or the current folder; give the run a folder of its own")
        expected = {*_OWN, *_OWN_FOLDERS, *_LAUNCHER, self.config.name}
        found = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        for name in found:
            if not name.startswith(".") and name not in expected and Path(name).suffix not in _LOGS:
                raise InputError(
                    f"{self.path}: not the folder of a run, it holds {name} and no config.yaml of a run; "
                    "choose another --out"
                )

    def _came_to_nothing(self, config: RunConfig) -> bool:
        """Tell whether all there is of a run is a config that it wrote itself: a wrong option stopped it at the start.

        A config that somebody wrote by hand is left alone.
        """
        left = [name for name in (*_OWN, *_OWN_FOLDERS) if (self.path / name).exists()]
        is_own = self.config.read_bytes() == dump_config(config).encode()
        return is_own and set(left) <= {self.environment.name}

    def _has_config(self) -> bool:
        """Tell whether there is a config of a run; one that another version wrote counts, that of other tools not."""
        if not self.config.is_file():
            return False
        lines = self.config.read_bytes().splitlines()
        return all(any(line.startswith(field) for line in lines) for field in (b"recipe:", b"suite:"))

    def drop_pool(self) -> None:
        """Remove the grown images, which only a run that is to go on needs; what cannot be removed stays.

        To be called once there is a file that keeps the run from going on. A process that is killed here leaves some
        parts, which the next call removes.
        """
        shutil.rmtree(self.pool, ignore_errors=True)

    def clear(self) -> None:
        """Remove the files of a run, and nothing else.

        The result first, since it says that the rest is there; the config last, since it says whose folder this is.
        """
        with advising(self.path):
            for name in _OWN:
                (self.path / name).unlink(missing_ok=True)
            for name in _OWN_FOLDERS:
                if (self.path / name).exists():
                    shutil.rmtree(self.path / name)
            self.config.unlink(missing_ok=True)


def refuse_other(mine: RunConfig, theirs: RunConfig, path: Path) -> None:
    """Refuse what another config made, by the name of the first field that differs.

    Fields that do not change numbers (device, logging, where the data lies) may differ.

    Raises:
        InputError: the configs describe different runs.
    """
    if content_hash(mine) == content_hash(theirs):
        return
    difference = first_difference(mine, theirs) or "a field"
    raise InputError(f"{path}: of another run, which differs in {difference}; choose another --out, or --fresh")


def _take_soon(lock: IO[bytes]) -> bool:
    """Take a lock that may be held for a moment: a launch holds it to see whether the run is at work."""
    for pause in (0.02, 0.05, 0.1, 0.2):
        with suppress(BlockingIOError):
            return take_lock(lock)
        time.sleep(pause)
    return take_lock(lock)


def write_run_file(path: Path, data: bytes) -> None:
    """Write a file of a run whole or not at all.

    Raises:
        StorageError: it cannot be written, with what to do about it; what was there stays.
    """
    with advising(path), replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def advising(path: Path) -> Iterator[None]:
    """Say what to do about it where `path` cannot be written in a `with` block.

    Raises:
        StorageError: one line, for any error of the system.

    Example:
        >>> with advising(Path("log.jsonl")):
        ...     raise OSError(13, "Permission denied")
        Traceback (most recent call last):
        asrnorm.core.errors.StorageError: log.jsonl: Permission denied; choose another --out
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            advice = "the disk is full; free some space and start again, the run goes on from its last checkpoint"
            raise StorageError(f"{path}: {advice}") from None
        raise StorageError(f"{describe_failure(error, path)}; choose another --out") from None


START_OVER = "start over with --fresh"


def describe_source(suite: Suite) -> dict[str, Any]:
    """Return what a run's source is known by: classes, number of images, and digests of their names and sizes."""
    return {
        "classes": list(suite.classes),
        "images": suite.count_source(),
        "listing": suite.source_listing(),
        "sizes": suite.source_sizes(),
    }


def refuse_other_source(path: Path, suite: Suite, otherwise: str = START_OVER) -> dict[str, Any]:
    """Refuse a suite whose source is not the one that a run was begun with, and return what the source is known by.

    Arguments and errors are those of `refuse_other_data`.
    """
    known = describe_source(suite)
    refuse_other_data(path, known["classes"], known["images"], known["listing"], known["sizes"], otherwise)
    return known


def refuse_other_start(path: Path, suite: Suite, config: RunConfig) -> dict[str, Any]:
    """Refuse another source or other weights than a run was begun with; return what they and the targets are known by.

    Raises:
        InputError: as `refuse_other_data`, or the file of weights has another content, or is not there.
    """
    known = refuse_other_source(path, suite) | {"targets": suite.target_listing()}
    return known if config.weights is None else known | {"weights": _refuse_other_weights(path, config.weights)}


def refuse_changed_images(path: Path, config: RunConfig) -> None:
    """Refuse the result of a finished run whose own images or weights are others now; gone, they change nothing.

    Other images of targets change no weight: they are told of.

    Args:
        path: `env.json` of the run.
        config: of the run.

    Raises:
        InputError: other classes, other images of the source, or other weights to start from.
    """
    if (suite := _find_own_images(config)) is not None:
        refuse_other_source(path, suite)
        if read_last(path).get("targets", suite.target_listing()) != suite.target_listing():
            logger.warning(
                "%s: other target images are there than the run was scored on; asrnorm evaluate scores them",
                path.parent,
            )
    if config.weights is not None and _is_there(config.weights):
        _refuse_other_weights(path, config.weights)


def read_last(path: Path) -> dict[str, Any]:
    """Return what `env.json` says of a run as it was gone on with last; nothing where it cannot be read."""
    try:
        first = json.loads(path.read_text())
        return dict(first) | {key: value for part in first.get("resumed", ()) for key, value in part.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_there(weights: str) -> bool:
    try:
        return find_weights(weights).is_file()
    except InputError:
        return False


def _refuse_other_weights(path: Path, weights: str) -> str:
    """Return the digest of a file of weights, if it is the one that a run was begun with."""
    file = find_weights(weights)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    if read_last(path).get("weights", digest) != digest:
        raise InputError(
            f"{path.parent}: the run was begun with other weights than {file} has now; bring back those that it was "
            f"begun with, or {START_OVER}"
        )
    return digest


def has_other_images(config: RunConfig, listing: str) -> bool:
    """Tell whether images of one's own are there, and of other names than a kept result was made with.

    Args:
        config: of the run.
        listing: the digest of names that is kept with the result; nothing, where it was kept before such were.
    """
    suite = _find_own_images(config)
    return bool(listing) and suite is not None and suite.source_listing() != listing


def _find_own_images(config: RunConfig) -> Suite | None:
    """Return a run's suite where its images are there, and are no published ones, the same wherever they lie."""
    try:
        suite = create_suite(config.suite.name, **config.suite.args)
        return suite if suite.source_listing() else None
    except AsrnormError:  # no folder, no such domain, no images
        return None


def read_listing(path: Path) -> str | None:
    """Return the digest of names that `env.json` keeps, `None` where it has none or cannot be read."""
    try:
        found = json.loads(path.read_text())["listing"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(found) or None


def refuse_other_data(
    path: Path, classes: Sequence[str], num_images: int, listing: str = "", sizes: str = "", otherwise: str = START_OVER
) -> None:
    """Refuse a run whose images are others now.

    Other classes: its outputs would stand for the wrong ones. Other images: what is held out would move, and images be
    trained on that the first part of the run was chosen by.

    Args:
        path: `env.json` of the run.
        classes: of the suite as it is now.
        num_images: of the source, held-out ones included.
        listing: what `Suite.source_listing` returns.
        sizes: what `Suite.source_sizes` returns.
        otherwise: what to do, but for bringing the images back.

    Raises:
        InputError: `env.json` names other classes, these in another order, another number of source images, or as many
            of other names or sizes.
    """
    try:
        begun = json.loads(path.read_text())
        before, count = list(begun["classes"]), int(begun.get("images", num_images))
        named, sized = begun.get("listing", listing), begun.get("sizes", sizes)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if [to_nfc(str(name)) for name in before] != list(map(to_nfc, classes)):
        gone = ", ".join(str(name) for name in before if name not in classes) or "none"
        new = ", ".join(name for name in classes if name not in before) or "none"
        raise InputError(f"{path.parent}: the run was begun with other classes (gone: {gone}; new: {new}); {otherwise}")
    others = f"{count:,} images of the source, there are {num_images:,} now" if count != num_images else ""
    if not others and named != listing:
        others = f"other images of the source: there are {num_images:,} as before, but not of the same names"
    if not others and sized != sizes:
        others = f"other images of the source: there are {num_images:,} of the same names, but other files"
    if others:
        raise InputError(
            f"{path.parent}: the run was begun with {others}; bring back those that it was begun with, or {otherwise}"
        )
