"""A download under way: `<name>.part`, and beside it a note of where its bytes came from."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from asrnorm.core.errors import FetchError

MARGIN = 64 << 20  # left free on the disk


class PartialFile:
    """The bytes that have come so far for `destination`, kept until they are the whole file.

    Args:
        destination: the final name; its folder must exist.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.path = destination.with_name(destination.name + ".part")
        self._note = destination.with_name(destination.name + ".part.json")

    def __len__(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self, url: str) -> str:
        """Return what identifies the version at `url` that these bytes are of; empty where that is not known."""
        try:
            note = json.loads(self._note.read_text())
            return str(note["validator"]) if note["url"] == url else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def remember(self, url: str, headers: Any) -> None:
        """Note where the bytes come from, before the first of them is written."""
        etag = headers.get("ETag") or ""
        # A weak tag does not promise equal bytes, so it is no use for a range.
        validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified") or ""
        self._note.write_text(json.dumps({"url": url, "validator": validator}))

    def need(self, missing: int) -> None:
        """Refuse to begin where the disk is too small for `missing` more bytes."""
        free = shutil.disk_usage(self.path.parent).free
        if missing + MARGIN > free:
            raise FetchError(
                f"{self.destination.name}: needs {(missing + MARGIN) >> 20} MiB in {self.path.parent}, "
                f"which has {free >> 20} MiB free"
            )

    def discard(self) -> None:
        """Forget the bytes."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def settle(self) -> None:
        """Give the file its final name."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())
        self.path.replace(self.destination)
        self._note.unlink(missing_ok=True)
