"""The folder of a run: its files, the lock that gives it to one process, and errors that say what to do."""

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from asrnorm.core.config import RunConfig, content_hash, dump_config, first_difference, load_config
from asrnorm.core.errors import InputError, StorageError
from asrnorm.core.files import DISK_FULL, describe_failure, file_sha256, open_to_append, replacing, take_lock
from asrnorm.core.results import RunResult, read_result
from asrnorm.models.weights import verify_checksum

logger = logging.getLogger("asrnorm")

_TEMPORARY = (".*.tmp*", ".result.json.*")
_FILES = ("result.json", "divergence.json", "model.safetensors", "env.json", "log.jsonl")
_FOLDERS = ("checkpoints", "pool", "events", "tracks", "choice", "evaluations", "analyses", "export")
_LAUNCHER = ("launch.yaml",)  # `asrnorm reproduce` writes it before it starts a run
_LOGS = frozenset({".log", ".out", ".err"})  # output that a shell, a scheduler or `asrnorm reproduce` redirects
_LOCK_PAUSES = (0.02, 0.05, 0.1, 0.2)  # seconds between attempts to take the lock


class RunFolder:
    """The files of one run; `open` creates the folder."""

    def __init__(self, path: Path) -> None:
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError:  # TensorBoard and safetensors accept no others
            raise InputError(f"{str(path)!a}: a run needs a folder whose path is valid UTF-8") from None
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "env.json"
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.pool = path / "pool"
        self.choice = path / "choice"
        self.model = path / "model.safetensors"
        self.result = path / "result.json"
        self.divergence = path / "divergence.json"

    def is_done(self) -> bool:
        """Tell whether there is a result; if it or its model is damaged, both are made again from a checkpoint."""
        if not self.result.exists():
            return False
        has_checkpoint = any(self.checkpoints.glob("[!.]*.pt"))
        if not self.model.exists() and has_checkpoint:
            return False
        try:
            self.check_model(read_result(self.result))
        except InputError as error:
            if not has_checkpoint:
                raise InputError(f"{error}; start over with --fresh") from None
            logger.warning("%s; it is made again from the last checkpoint", error)
            return False
        return True

    def check_model(self, result: RunResult) -> None:
        """Raise if the model is damaged, or not the one that the result was measured with; a missing one passes."""
        if not self.model.exists():
            return
        if not result.weights_sha256:
            verify_checksum(self.model)
        elif file_sha256(self.model) != result.weights_sha256:
            raise InputError(f"{self.model}: damaged or replaced, its SHA-256 is not the one in {self.result.name}")

    def check_config(self, config: RunConfig, result: RunResult) -> None:
        """Raise if `config.yaml`, read as `config`, has changed since the result; other devices and comments pass."""
        changed = result.config_sha256 and file_sha256(self.config) != result.config_sha256
        if changed and content_hash(config) != result.config_hash:
            raise InputError(
                f"{self.config}: damaged or edited since the run was done, its hash is {content_hash(config)} and not "
                f"{result.config_hash}; restore it, and give what is to change to the command, with --set"
            )

    @contextmanager
    def open(self, config: RunConfig, *, fresh: bool) -> Iterator[None]:
        """Create the folder and keep other processes out of it for the length of a `with` block.

        Raises:
            InputError: the folder holds another run or other files, or another process is working in it.
            StorageError: the folder cannot be written.
        """
        with advising(self.path):
            self._require_run_or_empty()
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open_to_append(self.path / ".lock")
        with lock:
            is_locked = self._take_lock(lock)
            if fresh:
                self.clear()
            elif self.config.exists():
                theirs = load_config(self.config)
                if content_hash(theirs) != content_hash(config) and self._has_only_config(theirs):
                    self.clear()
                else:
                    require_same_run(config, theirs, self.config)
            if is_locked:
                self._remove_temporary_files()
            else:
                logger.warning("%s: its file system has no locks; start no second process on this run", self.path)
            if not self.config.exists():
                write_run_file(self.config, dump_config(config).encode())
            try:
                yield
            except Exception:
                with suppress(OSError):  # the folder may be gone, which is what the error is about
                    if is_new and self._has_only_config(config):
                        self._remove()
                raise

    def drop_pool(self) -> None:
        """Remove the generated images, which only an unfinished run needs; ignore files that cannot be removed.

        Call it only once a file says that this run will not resume. A process killed here leaves some parts, which the
        next call removes.
        """
        shutil.rmtree(self.pool, ignore_errors=True)

    def clear(self) -> None:
        """Remove the files of a run, and no others.

        The result goes first, since it says that the rest is there; the config last, since it says whose folder it is.
        """
        with advising(self.path):
            for name in _FILES:
                (self.path / name).unlink(missing_ok=True)
            for name in _FOLDERS:
                if (self.path / name).exists():
                    shutil.rmtree(self.path / name)
            self.config.unlink(missing_ok=True)

    def _require_run_or_empty(self) -> None:
        """Raise, before anything is written or removed, if the folder is not a run's and holds other files.

        Hidden files and single files of a run are accepted: a process killed before it wrote its config leaves them.
        """
        if self._has_config():
            return
        if self.path == Path():  # pathlib's reading of an empty string
            raise InputError("--out: an empty path, or the current folder; give the run a folder of its own")
        expected = {*_FILES, *_FOLDERS, *_LAUNCHER, self.config.name}
        found = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        for name in found:
            if not name.startswith(".") and name not in expected and Path(name).suffix not in _LOGS:
                raise InputError(
                    f"{self.path}: not the folder of a run, it holds {name} and no config.yaml of a run; "
                    "choose another --out"
                )

    def _has_config(self) -> bool:
        """Tell whether there is a run's config, maybe of another version; other tools have a config.yaml too."""
        if not self.config.is_file():
            return False
        lines = self.config.read_bytes().splitlines()
        return all(any(line.startswith(field) for line in lines) for field in (b"recipe:", b"suite:"))

    def _has_only_config(self, config: RunConfig) -> bool:
        """Tell whether the run left only its own config, as it does if a wrong option stops it at the start.

        A config written by hand does not count.
        """
        left = {name for name in (*_FILES, *_FOLDERS) if (self.path / name).exists()}
        return left <= {self.environment.name} and self.config.read_bytes() == dump_config(config).encode()

    def _remove(self) -> None:
        self.clear()
        with suppress(OSError):  # by now it holds somebody else's file
            (self.path / ".lock").unlink(missing_ok=True)
            self.path.rmdir()

    def _remove_temporary_files(self) -> None:
        """Remove the temporary files of a process that was killed."""
        for run in (self, RunFolder(self.choice)):
            for folder in (run.path, *(one for one in (run.checkpoints, run.pool) if not one.is_symlink())):
                for leftover in (path for pattern in _TEMPORARY for path in folder.glob(pattern)):
                    leftover.unlink(missing_ok=True)

    def _take_lock(self, lock: IO[bytes]) -> bool:
        """Lock the folder; a launch may hold the lock for a moment, to see whether the run is active."""
        try:
            for pause in _LOCK_PAUSES:
                with suppress(BlockingIOError):
                    return take_lock(lock)
                time.sleep(pause)
            return take_lock(lock)
        except BlockingIOError:
            raise InputError(f"{self.path}: another process is working on this run; let it finish") from None
        except OSError as error:
            raise StorageError(f"{describe_failure(error, self.path)}; choose another --out") from None


def require_same_run(mine: RunConfig, theirs: RunConfig, path: Path) -> None:
    """Raise if two configs describe different runs, and name the first field that differs.

    Fields that do not change numbers (device, logging, where the data is) may differ.
    """
    if content_hash(mine) != content_hash(theirs):
        difference = first_difference(mine, theirs) or "a field"
        raise InputError(f"{path}: of another run, which differs in {difference}; choose another --out, or --fresh")


def write_run_file(path: Path, data: bytes) -> None:
    """Write a file of a run atomically; on a `StorageError` the old content stays."""
    with advising(path), replacing(path, follow_links=False) as temporary:
        temporary.write_bytes(data)


@contextmanager
def advising(path: Path) -> Iterator[None]:
    """Turn an error of the file system in a `with` block into a `StorageError` of one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            advice = "the disk is full; free some space and start again, the run resumes from its last checkpoint"
            raise StorageError(f"{path}: {advice}") from None
        raise StorageError(f"{describe_failure(error, path)}; choose another --out") from None
