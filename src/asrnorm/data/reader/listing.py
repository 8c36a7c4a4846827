"""Lists of `name label` lines, as PACS and MNIST-M publish them."""

from pathlib import Path

from asrnorm.core.errors import InputError
from asrnorm.data.reader.stream import read_bytes

MOST_BYTES = 1 << 26


def read_listing(path: Path, *, labels: range) -> list[tuple[str, int]]:
    r"""Return the names and labels of a list, in order.

    Args:
        path: the text file.
        labels: what a label may be.

    Raises:
        InputError: a line that is not a relative path and a label in range, with its number.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "photo_train_kfold.txt"
        ...     _ = path.write_text("photo/dog/056_0001.jpg 1\n")
        ...     read_listing(path, labels=range(1, 8))
        [('photo/dog/056_0001.jpg', 1)]
    """
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        name = name.strip().replace("\\", "/")
        if not label.isascii() or not label.isdigit() or len(label) > 9 or int(label) not in labels:
            raise InputError(f"{path}, line {number}: expected a name and a label {labels[0]} to {labels[-1]}")
        if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
            raise InputError(f"{path}, line {number}: {name[:80]!r} is not a path inside the data set")
        entries.append((name, int(label)))
    if not entries:
        raise InputError(f"{path}: no lines")
    return entries
