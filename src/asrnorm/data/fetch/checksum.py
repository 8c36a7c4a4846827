"""Checksums of files, written as `algorithm:hex` so that each says how it is to be computed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

CHUNK = 1 << 20


def compute(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Return `algorithm -> algorithm:hex` of a file's bytes, all of them in one pass over the file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "empty"
        ...     _ = file.write_bytes(b"")
        ...     compute(file, ["md5"])
        {'md5': 'md5:d41d8cd98f00b204e9800998ecf8427e'}
    """
    # MD5 and SHA-1 are what many sets publish: they guard against damage here, not against an attacker.
    running = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            for state in running.values():
                state.update(block)
    return {name: f"{name}:{state.hexdigest()}" for name, state in running.items()}


def algorithm_of(digest: str) -> str:
    """Return the algorithm of an `algorithm:hex` string.

    Example:
        >>> algorithm_of("sha256:00ff")
        'sha256'
    """
    return digest.partition(":")[0]


def matches(path: Path, digest: str) -> bool:
    """Return whether the file's bytes have this checksum."""
    name = algorithm_of(digest)
    return compute(path, [name])[name] == digest.lower()
