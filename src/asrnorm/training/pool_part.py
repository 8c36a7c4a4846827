"""The grown parts of a pool on the disk: one immutable file each, named by what it holds.

A checkpoint names the parts it needs with their SHA-256 and stays small; a part is written once, however many
checkpoints need it.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from torch import Tensor

from asrnorm.data.pool import Pool
from asrnorm.errors import AsrnormError
from asrnorm.training.folder import write_run_file


class DamagedError(AsrnormError, ValueError):
    """A file of a run that is missing or not as it was written; an older checkpoint may need it not."""


class PartName(TypedDict):
    """File name and SHA-256 of a part."""

    name: str
    sha256: str


class PartStore:
    """The part files of one run.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored: list[PartName] = []

    def save(self, pool: Pool) -> list[PartName]:
        """Write the parts that are not on the disk yet and return the names of all, in order."""
        from safetensors.torch import save

        for index in range(len(self._stored), len(pool.parts)):
            images, labels = pool.parts[index]
            data = save({"images": images.cpu().contiguous(), "labels": labels.cpu()})
            digest = hashlib.sha256(data).hexdigest()
            name = f"part-{index:04d}-{digest[:12]}.safetensors"
            write_run_file(self._folder / name, data)
            self._stored.append({"name": name, "sha256": digest})
        return list(self._stored)

    def load(self, names: Iterable[PartName]) -> list[tuple[Tensor, Tensor]]:
        """Return images and labels of each part.

        Raises:
            DamagedError: a file is missing, or its bytes are not those that were written.
        """
        from safetensors.torch import load

        self._stored = list(names)
        parts = []
        for part in self._stored:
            path = self._folder / part["name"]
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DamagedError(f"{path}: {error.strerror}") from None
            if hashlib.sha256(data).hexdigest() != part["sha256"]:
                raise DamagedError(f"{path}: damaged, its SHA-256 is not the one that was written")
            tensors = load(data)
            parts.append((tensors["images"], tensors["labels"]))
        return parts

    def forget(self) -> None:
        """Take no part for stored: the next `save` writes them all."""
        self._stored = []

    def prune(self, kept: Iterable[str]) -> None:
        """Remove part files that no checkpoint names any more."""
        keep = set(kept)
        for path in self._folder.glob("part-*.safetensors"):
            if path.name not in keep:
                path.unlink(missing_ok=True)
