"""Checkpoints: the complete state of a run, written atomically, the last two kept, and read without running code.

A file is what `torch.save` writes, followed by the SHA-256 of that: torch does not check what it reads, and a flipped
bit would silently change the run. `torch.load` ignores the tail, so that the files open as any other.

Generated images are stored apart, one immutable file per part of the pool. A checkpoint names the parts it needs with
their SHA-256, so that it stays small and a part is written once.
"""

import hashlib
import io
import logging
import pickle
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrnorm.core.config import RunConfig, from_mapping, to_mapping
from asrnorm.core.errors import AsrnormError, InputError, first_line
from asrnorm.core.files import replacing, sync_file
from asrnorm.core.reading import check_pickle
from asrnorm.data.pool import Pool
from asrnorm.training.run_folder import advising, require_same_run, write_run_file

logger = logging.getLogger("asrnorm")

SCHEMA = 1
NAMES = ("last.pt", "previous.pt")
_MOST_LOST = 300.0  # seconds of work that a crash may cost, if the steps between checkpoints take longer
_DIGITS = 64  # of a SHA-256 in hex
_PART = re.compile(r"part-\d{4,}-[0-9a-f]{12}\.safetensors")
_PLAIN = (int, float, bool, str, type(None))  # exactly these types: NumPy's numbers inherit from some of them


class DamagedError(AsrnormError, ValueError):
    """A file of a run is missing or damaged; an older checkpoint may not need it."""


class Loaded(NamedTuple):
    """A checkpoint and the parts of the pool that it names."""

    name: str
    state: dict[str, Any]
    parts: list[tuple[Tensor, Tensor]]


class CheckpointStore:
    """The checkpoints of one run; one that belongs to another config is an error."""

    def __init__(self, folder: Path, pool_folder: Path, config: RunConfig) -> None:
        self._last, self._previous = (folder / name for name in NAMES)
        self._config = config
        self._parts = PartStore(pool_folder)
        self._named: dict[str, list[str]] = {}  # the parts that each readable checkpoint needs
        self._saved = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Tell whether the last checkpoint was so long ago that a crash would lose much work."""
        return time.monotonic() - self._saved > _MOST_LOST

    def is_empty(self) -> bool:
        """Tell whether the run has no checkpoint yet, readable or not."""
        return not (self._last.exists() or self._previous.exists())

    def save(self, state: dict[str, Any], pool: Pool) -> None:
        """Make `state` the last checkpoint and the last one the previous; on an error both stay as they were."""
        parts = self._parts.save(pool)
        whole = {"schema": SCHEMA, "config": to_mapping(self._config), "parts": parts, **state}
        with advising(self._last), replacing(self._last, follow_links=False) as temporary:
            data = pack(whole)
            require_loadable(whole, data)
            temporary.write_bytes(data)
            sync_file(temporary)  # on the disk before the last one gives up its name
            if "last.pt" in self._named:  # a damaged one must not replace the good previous one
                self._last.replace(self._previous)
                self._named["previous.pt"] = self._named["last.pt"]
        self._named["last.pt"] = [part["name"] for part in parts]
        self._parts.prune(name for names in self._named.values() for name in names)
        self._saved = time.monotonic()

    def load(self, *, stop: int | None = None, only: str | None = None) -> Loaded | None:
        """Return the newest readable checkpoint, or the one named `only`; `None` if there is none.

        That of the last step, `stop`, is read without its parts, which may be gone.

        Raises:
            InputError: it belongs to another run, or none of the files can be read.
        """
        problems = []
        for path in (self._last, self._previous):
            if not path.exists() or only not in (None, path.name):
                continue
            try:
                state = unpack(path)
                require_same_run(self._config, from_mapping(state["config"], str(path)), path)
                parts = self._parts.load(state["parts"]) if state["step"] != stop else []
            except DamagedError as error:
                problems.append(str(error))
                continue
            self._named = {path.name: [part["name"] for part in state["parts"]]}
            if problems:
                logger.warning("%s; resuming from %s at step %s", problems[0], path.name, state["step"])
            return Loaded(path.name, state, parts)
        self._parts.forget()
        if problems:
            raise InputError(f"{problems[0]}; no other checkpoint can be read, start over with --fresh")
        return None


def pack(state: dict[str, Any]) -> bytes:
    """Return a state as the bytes of a checkpoint file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    return data + hashlib.sha256(data).hexdigest().encode()


def unpack(path: Path) -> dict[str, Any]:
    """Return the state in a file that `pack` made, on the CPU, or raise `DamagedError`; no code in it is executed."""
    data = _read(path)
    content, digest = data[:-_DIGITS], data[-_DIGITS:]
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise DamagedError(f"{path}: damaged, its checksum does not match")
    try:
        check_pickle(io.BytesIO(content))
        with warnings.catch_warnings(action="ignore"):  # torch's advice on how to load it anyway
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # torch's reader raises RuntimeError, EOFError, IndexError, ...
        raise DamagedError(f"{path}: damaged, or it holds more than tensors and plain values") from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise DamagedError(f"{path}: not a checkpoint of schema {SCHEMA}")
    kinds = {"config": dict, "parts": list, "step": int}
    if wrong := [name for name, kind in kinds.items() if type(state.get(name)) is not kind]:
        raise DamagedError(f"{path}: damaged, without {', '.join(wrong)}")
    if state["step"] < 0:
        raise DamagedError(f"{path}: damaged, of step {state['step']}")
    for part in state["parts"]:  # a path for a name would lead out of the folder
        if not (isinstance(part, dict) and "sha256" in part and _PART.fullmatch(str(part.get("name")))):
            raise DamagedError(f"{path}: damaged, {part!r:.80} is not a part")
    return state


def require_loadable(state: dict[str, Any], data: bytes) -> None:
    """Raise if `unpack` could not read a state: when it is written, not when it is needed."""
    foreign = next(_find_foreign(state, ""), None)
    if foreign is None:
        return
    try:
        torch.load(io.BytesIO(data[:-_DIGITS]), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        key, kind = foreign
        raise InputError(
            f"the state of the run has {kind.__module__}.{kind.__qualname__} at {key}, which a checkpoint cannot hold: "
            "return tensors, numbers, text, and lists and dicts of them from state_dict()"
        ) from None


def _find_foreign(value: object, key: str) -> Iterator[tuple[str, type]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _find_foreign(part, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _find_foreign(part, f"{key}[{index}]")
    elif not isinstance(value, Tensor) and type(value) not in _PLAIN:
        yield key, type(value)


class PartStore:
    """The generated parts of a pool, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored: list[dict[str, str]] = []

    def save(self, pool: Pool) -> list[dict[str, str]]:
        """Write the parts that are not on the disk yet; return `name` and `sha256` of all, in order."""
        from safetensors.torch import save

        for index in range(len(self._stored), len(pool.parts)):
            images, labels = pool.parts[index]
            data = save({"images": images.cpu().contiguous(), "labels": labels.cpu()})
            digest = hashlib.sha256(data).hexdigest()
            name = f"part-{index:04d}-{digest[:12]}.safetensors"
            write_run_file(self._folder / name, data)
            self._stored.append({"name": name, "sha256": digest})
        return list(self._stored)

    def load(self, names: Iterable[dict[str, str]]) -> list[tuple[Tensor, Tensor]]:
        """Return images and labels of each part; raise `DamagedError` if a file is missing or has other bytes."""
        from safetensors.torch import load

        self._stored = list(names)
        parts = []
        for part in self._stored:
            path = self._folder / part["name"]
            data = _read(path)
            if hashlib.sha256(data).hexdigest() != part["sha256"]:
                raise DamagedError(f"{path}: damaged, its checksum does not match")
            try:
                tensors = load(data)
                parts.append((tensors["images"], tensors["labels"]))
            except Exception as error:  # safetensors has an error class of its own
                raise DamagedError(f"{path}: damaged ({first_line(error)})") from None
        return parts

    def forget(self) -> None:
        """Assume that no part is stored: the next `save` writes them all."""
        self._stored = []

    def prune(self, kept: Iterable[str]) -> None:
        """Remove the files of parts that no checkpoint names any more."""
        keep = set(kept)
        for path in self._folder.glob("part-*.safetensors"):
            if path.name not in keep:
                path.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from None
