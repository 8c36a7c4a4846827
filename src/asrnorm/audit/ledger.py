"""Results as they come, so that an audit that was killed goes on where it stopped."""

import json
import os
from pathlib import Path
from typing import Any

from asrnorm.core.errors import StorageError
from asrnorm.core.files import describe_failure


class Ledger:
    """A file of JSON lines, `{"key", "part", "value"}`; a line that was cut off by a kill is passed over.

    Args:
        path: of the file, made with the first result; `None` keeps results in memory alone.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Ledger(Path(folder) / "ledger.jsonl").put("a", "clean", 1)
        ...     Ledger(Path(folder) / "ledger.jsonl").get("a", "clean")
        1
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._values: dict[tuple[str, str], Any] = {}
        if path is None:
            return
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise StorageError(describe_failure(error, path)) from None
        for line in lines:
            try:
                row = json.loads(line)
                self._values[row["key"], row["part"]] = row["value"]
            except (ValueError, KeyError, TypeError):
                continue

    def get(self, key: str, part: str) -> Any:
        """Return what is known of a part, or nothing."""
        return self._values.get((key, part))

    def put(self, key: str, part: str, value: Any) -> None:
        """Write a result to the disk.

        Raises:
            StorageError: the disk is full, or the place cannot be written.
        """
        self._values[key, part] = value
        if self.path is None:
            return
        # Begun with a line break: a line that was cut off must not swallow this one.
        line = "\n" + json.dumps({"key": key, "part": part, "value": value}, allow_nan=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(describe_failure(error, self.path)) from None
