"""Unpacking: every format, hostile members, and damaged or random archives."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import stat
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import FetchError, InputError
from asrnorm.data.download import archive as module
from asrnorm.data.download.archive import Limits, is_archive, unpack
from helpers.archive_file import FILES, keep, make_tar, make_zip


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "outer" / "out"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_tar_files_of_every_compression_are_unpacked(tmp_path, out, mode):
    # The name says nothing: content decides.
    written = unpack(make_tar(tmp_path / "data", mode=mode), out, keep)
    assert tree(out) == FILES
    assert list(written) == list(FILES)


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_zip_files_and_wheels_are_unpacked(tmp_path, out, kind):
    unpack(make_zip(tmp_path / "some-1.0-py3-none-any.whl", compression=kind), out, keep)
    assert tree(out) == FILES


def test_backslashes_of_a_windows_zip_divide_folders(tmp_path, out):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in FILES:
            entry = zipfile.ZipInfo("x")
            entry.filename = "set\\" + name.replace("/", "\\")  # which the constructor would turn
            made.writestr(entry, FILES[name])
    asked = []
    unpack(archive, out, lambda name: asked.append(name) or keep(name.removeprefix("set/")))
    assert asked == [f"set/{name}" for name in FILES]
    assert tree(out) == FILES


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_single_packed_file_is_named_after_its_archive(tmp_path, out, ending, pack):
    path = tmp_path / f"train-images.{ending}"
    path.write_bytes(pack(b"pixels" * 1000))
    unpack(path, out, keep)
    assert tree(out) == {"train-images": b"pixels" * 1000}


def test_only_wanted_members_are_written_under_the_names_that_the_caller_gives(tmp_path, out):
    unpack(make_zip(tmp_path / "a.zip"), out, lambda name: "x/y" if name.endswith("a.txt") else None)
    assert tree(out) == {"x/y": b"alpha"}


ESCAPES = ["../evil", "a/../../evil", "/evil", "\\evil", "..\\evil", "C:\\evil", "C:/evil", "a/b/../../../evil"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_name_that_leads_outside_is_refused(tmp_path, out, make, name, wanted):
    path = make(tmp_path / "a", {"good": b"1", name: b"evil"})
    with pytest.raises(InputError, match=r"^a: .*leads outside"):
        unpack(path, out, keep if wanted else lambda member: member if member == "good" else None)
    assert not list(tmp_path.rglob("*evil*"))


def test_a_chosen_path_that_leads_outside_is_refused_too(tmp_path, out):
    with pytest.raises(InputError, match="outside"):
        unpack(make_zip(tmp_path / "a.zip"), out, lambda name: "../" + PurePosixPath(name).name)
    assert tree(tmp_path / "outer") == {}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, out, kind):
    path = make_tar(tmp_path / "a.tar", {"good": b"1"}, extra=[link("bad", "/etc/passwd", kind)])
    with pytest.raises(InputError, match="link or a device"):
        unpack(path, out, keep)
    assert not (out / "bad").exists()


def test_a_link_in_a_zip_is_refused(tmp_path, out):
    info = zipfile.ZipInfo("bad")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="link or a device"):
        unpack(tmp_path / "a.zip", out, keep)


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path, out):
    victim = tmp_path / "victim"
    victim.mkdir()
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        made.addfile(link("door", str(victim)))
        info = tarfile.TarInfo("door/file")
        info.size = 4
        made.addfile(info, io.BytesIO(b"evil"))
    # The link itself is not wanted, so that it is passed over: the file lands in a plain folder.
    unpack(path, out, lambda name: None if name == "door" else name)
    assert tree(victim) == {}
    assert not (out / "door").is_symlink()
    assert tree(out) == {"door/file": b"evil"}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_member_that_comes_twice_is_refused(tmp_path, out, make):
    with pytest.raises(InputError, match="comes twice"):
        unpack(make(tmp_path / "a", [("x", b"1"), ("x", b"2")]), out, keep)


def test_a_file_where_a_folder_is_needed_is_one_line(tmp_path, out):
    with pytest.raises((InputError, FetchError)):
        unpack(make_tar(tmp_path / "a", [("x", b"1"), ("x/y", b"2")]), out, keep)


@pytest.mark.parametrize(
    "name", ["a\nb", "-rf", " lead", "ünï", "a" * 200, "con", "a:b", "\u202etxt", "x" * 300, "a\x00b"]
)
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_odd_names_are_written_below_the_folder_or_refused(tmp_path, out, make, name):
    path = make(tmp_path / "a", {name: b"1"})
    with contextlib.suppress(InputError, FetchError):
        unpack(path, out, keep)
    assert set(tmp_path.iterdir()) == {path, tmp_path / "outer"}
    assert list((tmp_path / "outer").iterdir()) == [out]


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_decompression_bomb_is_stopped_by_its_total(tmp_path, out, make):
    path = make(tmp_path / "bomb", {"zeros": bytes(20 << 20)})
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="decompression bomb"):
        unpack(path, out, keep, Limits(total=10 << 20))
    assert sum(map(len, tree(out).values())) <= 11 << 20


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_bomb_is_stopped_by_its_ratio_even_where_nothing_is_wanted(tmp_path, out, ending, monkeypatch):
    monkeypatch.setattr(module, "RATIO_FROM", 1 << 20)
    path = make_tar(tmp_path / "bomb", {"zeros": bytes(64 << 20), "end": b""}, mode=f"w:{ending}")
    with pytest.raises(InputError, match="decompression bomb"):
        unpack(path, out, lambda _: None)


def test_a_packed_bomb_is_stopped(tmp_path, out):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(20 << 20)))
    with pytest.raises(InputError, match="decompression bomb"):
        unpack(path, out, keep, Limits(total=10 << 20))


def test_a_zip_that_lies_about_its_sizes_is_damaged(tmp_path, out):
    path = make_zip(tmp_path / "a.zip", {"x": bytes(1 << 20)})
    data = path.read_bytes()
    path.write_bytes(data.replace((1 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(InputError):
        unpack(path, out, keep)


def test_a_tar_header_that_claims_gigabytes_is_refused_before_it_is_read(tmp_path, out):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 7 << 30
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    start = time.monotonic()
    with pytest.raises(InputError):
        unpack(path, out, keep)
    assert time.monotonic() - start < 2


def test_too_many_members_are_refused(tmp_path, out):
    path = make_zip(tmp_path / "a.zip", {str(i): b"" for i in range(50)})
    with pytest.raises(InputError, match="more than 20 members"):
        unpack(path, out, keep, Limits(members=20))


def test_an_encrypted_zip_is_one_line(tmp_path, out):
    path = make_zip(tmp_path / "a.zip", {"x": b"1"})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="encrypted"):
        unpack(path, out, keep)


@pytest.mark.parametrize("content", [b"", b"x", b"plain text", b"<html></html>" * 99, bytes(600)])
def test_what_is_no_archive_is_said_to_be_none(tmp_path, out, content):
    path = tmp_path / "a"
    path.write_bytes(content)
    assert not is_archive(path)
    with pytest.raises(InputError, match=r"^a: "):
        unpack(path, out, keep)


def test_archives_are_recognized_by_content(tmp_path):
    assert is_archive(make_zip(tmp_path / "a"))
    for mode in ("w:", "w:gz", "w:bz2", "w:xz"):
        assert is_archive(make_tar(tmp_path / "b", mode=mode))


def test_a_folder_that_cannot_be_written_is_not_called_a_damaged_archive(tmp_path, out, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    path = make_zip(tmp_path / "a.zip")
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(FetchError, match="No space left"):
        unpack(path, out, keep)


def test_a_name_is_judged_whole_also_behind_a_nul(tmp_path):
    member = zipfile.ZipInfo("x")
    member.filename = "set/x.txt\0.exe"  # the constructor would cut it
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(member, "x")
    seen = []
    assert unpack(tmp_path / "a.zip", tmp_path, lambda name: seen.append(name)) == {}
    assert seen == ["set/x.txt\0.exe"]


def test_members_that_are_each_small_are_counted_together(tmp_path):
    (tmp_path / "out").mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for index in range(3):
            archive.writestr(f"{index}.txt", bytes(600))
    with pytest.raises(InputError, match="decompression bomb"):
        unpack(tmp_path / "a.zip", tmp_path / "out", lambda name: name, Limits(total=1500))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_sparse_file_of_a_tar_is_refused(tmp_path):
    member = tarfile.TarInfo("x.bin")
    member.size = 1
    member.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "4096"}
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(InputError, match=r"'x\.bin' is a link or a device"):
        unpack(tmp_path / "a.tar", tmp_path, lambda name: name)


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
