"""Damaged and random archives: unpacked or refused, and nothing outside the folder is touched."""

import contextlib
import io
import random
import tarfile
import tempfile
import zipfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import FetchError, InputError
from asrnorm.data.download.archive import Limits, unpack
from helpers.archive_file import keep, make_tar, make_zip


def originals():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [make_zip(folder / "z"), make_zip(folder / "s", compression=zipfile.ZIP_STORED)]
        made += [make_tar(folder / mode[2:], mode=mode) for mode in ("w:gz", "w:bz2", "w:xz")]
        made += [make_tar(folder / "plain", mode="w:")]
        pax = {"pax_headers": {"comment": "ü" * 300}}
        with tarfile.open(folder / "pax", "w", format=tarfile.PAX_FORMAT, **pax) as tar:
            info = tarfile.TarInfo("long/" + "n" * 150)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"alpha"))
        return [path.read_bytes() for path in [*made, folder / "pax"]]


ORIGINALS = originals()


def try_unpack(data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "around" / "out"
        folder.mkdir(parents=True)
        path = Path(name) / "archive"
        path.write_bytes(data)
        with contextlib.suppress(InputError, FetchError):
            written = unpack(path, folder, keep, Limits(total=4 << 20, members=1000))
            assert {p.resolve() for p in written.values()} == {p.resolve() for p in folder.rglob("*") if p.is_file()}
        assert sorted(p.name for p in Path(name).iterdir()) == ["archive", "around"]
        assert [p.name for p in folder.parent.iterdir()] == ["out"]
        assert not any(p.is_symlink() for p in folder.rglob("*"))
        assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 5 << 20


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(ORIGINALS),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    st.floats(0, 1),
)
def test_a_mutated_archive_is_unpacked_or_refused_and_nothing_else_happens(original, flips, end):
    data = bytearray(original)
    for where, value in flips:
        data[int(where * len(data))] = value
    try_unpack(bytes(data[: max(1, int(end * len(data) + 0.5))]))


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=600),
    st.sampled_from([b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b""]),
)
def test_random_bytes_are_refused_or_harmless(noise, magic):
    try_unpack(magic + noise)


def test_many_seeded_mutations_of_every_kind():
    generator = random.Random(7)
    for original in ORIGINALS:
        for _ in range(60):
            data = bytearray(original)
            for _ in range(generator.randint(1, 6)):
                start = generator.randrange(len(data))
                data[start : start + generator.randint(0, 8)] = generator.randbytes(generator.randint(0, 8))
            try_unpack(bytes(data))
