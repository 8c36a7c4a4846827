"""A data set of two small files with two layouts, to be fetched from a test's own server."""

import gzip
import hashlib
import io
import tarfile

from asrnorm.core.errors import InputError
from asrnorm.data.download.catalog import File, PublicSet, Source

FILES = {"one.bin": b"first file" * 1000, "two.bin": b"second file" * 1000}


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def pack(files=FILES, prefix="toy-1.0/"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


TAR = pack({**FILES, "README": b"unwanted"})


def same_length(path):
    """A copy whose bytes differ will do if it is as long."""
    if path.stat().st_size != len(FILES["two.bin"]):
        raise InputError(f"{path.name}: another length")
    return "a copy"


def toy_set(url, packages=(), **changes):
    """The set, with its archive at `/toy.tar.gz` and its second file packed alone at `/two.bin.gz`."""
    one = File("toy/one.bin", len(FILES["one.bin"]), sha256(FILES["one.bin"]))
    two = File("toy/two.bin", None, sha256(FILES["two.bin"]), content=same_length)
    other = File("toy-other/all.bin", 3, sha256(b"all"))
    alone = gzip.compress(FILES["two.bin"], mtime=0)
    settings = {
        "name": "toy",
        "title": "Toy Set",
        "licence": "CC0",
        "homepage": "http://toy.invalid/",
        "layouts": ((one, two), (other,)),
        "sources": (
            Source("two.bin.gz", (url("/two.bin.gz"),), ("toy/two.bin",), sha256(alone), len(alone)),
            Source("toy.tar.gz", (url("/gone"), url("/toy.tar.gz")), (one.path, two.path), sha256(TAR), len(TAR)),
            Source("all.bin", (url("/all.bin"),), (other.path,), other.digest, 3, packed=False),
        ),
        "packages": packages,
        "note": "a note",
    }
    return PublicSet(**{**settings, **changes})
