"""The folder of a run: where its files lie, who may write them, and what to do where they cannot be written."""

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from asrnorm.config import RunConfig, content_hash, dump_config, first_difference, load_config
from asrnorm.errors import InputError, StorageError
from asrnorm.lock import take_lock
from asrnorm.results import read_result
from asrnorm.storage import DISK_FULL, describe_failure, replacing

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
        asrnorm.errors.StorageError: log.jsonl: Permission denied; choose another --out
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            advice = "the disk is full; free some space and start again, the run goes on from its last checkpoint"
            raise StorageError(f"{path}: {advice}") from None
        raise StorageError(f"{describe_failure(error, path)}; choose another --out") from None
