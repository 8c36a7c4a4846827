import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from urllib.request import Request

import pytest

from asrnorm.core.errors import FetchError
from asrnorm.data.download import mirrors
from asrnorm.data.download.mirrors import NoMirrorError, PartialFile, Policy, download
from helpers.flaky_server import Page, serve

BODY = random.Random(0).randbytes(1_500_000)
SHA = "sha256:" + hashlib.sha256(BODY).hexdigest()
QUICK = Policy(timeout=5, attempts=3, pause=0.01)


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serve() as running:
        yield running


def get(server, folder, *paths, **options):
    options.setdefault("digest", SHA)
    return download([server.url(path) for path in paths], folder / "file.bin", policy=QUICK, **options)


def only(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_and_nothing_else_is_left(server, tmp_path):
    server.pages["/a"] = Page(BODY)
    seen = []
    got = get(server, tmp_path, "/a", size=len(BODY), progress=lambda *now: seen.append(now))
    assert got.read_bytes() == BODY
    assert only(tmp_path) == ["file.bin"]
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_cut_answer_is_continued_where_it_stopped(server, tmp_path):
    server.pages["/a"] = Page(BODY, cut=2, cut_at=400_000)
    assert get(server, tmp_path, "/a").read_bytes() == BODY
    ranges = [headers.get("Range") for _, headers in server.requests]
    assert ranges == [None, "bytes=400000-", "bytes=800000-"]
    assert server.requests[1][1]["If-Range"] == '"v1"'


def test_progress_resets_the_count_of_failures(server, tmp_path):
    server.pages["/a"] = Page(BODY, cut=5, cut_at=200_000)
    assert get(server, tmp_path, "/a").read_bytes() == BODY


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"old bytes")
    (tmp_path / "file.bin.part.json").write_text(f'{{"url": "{server.url("/a")}", "validator": "\\"v0\\""}}')
    server.pages["/a"] = Page(BODY)
    assert get(server, tmp_path, "/a").read_bytes() == BODY
    assert len(server.requests) == 1


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.pages["/a"] = Page(BODY, cut=1, cut_at=400_000, ranges=False)
    assert get(server, tmp_path, "/a").read_bytes() == BODY


def test_a_foreign_part_of_the_wrong_bytes_is_dropped(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    server.pages["/a"] = Page(BODY)
    assert get(server, tmp_path, "/a").read_bytes() == BODY
    assert [headers.get("Range") for _, headers in server.requests] == ["bytes=1000-", None]


def test_without_checksum_and_validator_two_halves_are_never_joined(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    server.pages["/a"] = Page(BODY)
    assert get(server, tmp_path, "/a", digest="").read_bytes() == BODY
    assert "Range" not in server.requests[0][1]


def test_a_whole_part_is_recognized_without_another_byte(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY)
    server.pages["/a"] = Page(BODY)
    assert get(server, tmp_path, "/a").read_bytes() == BODY
    assert [headers.get("Range") for _, headers in server.requests] == [f"bytes={len(BODY)}-"]


def test_the_next_mirror_is_tried_after_404_wrong_bytes_and_web_pages(server, tmp_path):
    server.pages["/wrong"] = Page(b"x" * len(BODY))
    server.pages["/page"] = Page(b"<html>", kind="text/html; charset=utf-8")
    server.pages["/good"] = Page(BODY)
    assert get(server, tmp_path, "/404", "/wrong", "/page", "/good").read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["/404", "/wrong", "/page", "/good"]


def test_a_mirror_that_fails_halfway_leaves_its_bytes_to_the_next(server, tmp_path):
    server.pages["/a"] = Page(BODY, cut=99, cut_at=0)
    server.pages["/b"] = Page(BODY)
    (tmp_path / "file.bin.part").write_bytes(BODY[:700_000])
    assert get(server, tmp_path, "/a", "/b").read_bytes() == BODY
    assert server.requests[-1][1]["Range"] == "bytes=700000-"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (Page(status=404), "HTTP 404"),
        (Page(status=503), "HTTP 503"),
        (Page(b"x" * 10), "10 bytes, the published file 1500000"),
        (Page(b"x" * len(BODY)), "checksum differs"),
        (Page(location="ftp://127.0.0.1/x"), "redirects to ftp"),
        (Page(location="file:///etc/passwd"), "HTTP 302"),
    ],
)
def test_one_line_says_why_a_mirror_failed(server, tmp_path, page, words):
    server.pages["/a"] = page
    with pytest.raises(NoMirrorError, match=words) as caught:
        get(server, tmp_path, "/a", size=len(BODY))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("file.bin: ")
    assert only(tmp_path) == []


def test_busy_servers_are_asked_again_and_missing_files_are_not(server, tmp_path):
    server.pages["/busy"] = Page(status=503)
    with pytest.raises(FetchError):
        get(server, tmp_path, "/busy", "/404")
    assert [path for path, _ in server.requests] == ["/busy"] * 3 + ["/404"]


def test_redirects_are_followed(server, tmp_path):
    server.pages["/a"] = Page(location="/b")
    server.pages["/b"] = Page(location=server.url("/c"))
    server.pages["/c"] = Page(BODY, cut=1, cut_at=1000)
    assert get(server, tmp_path, "/a").read_bytes() == BODY


def test_a_circle_of_redirects_ends(server, tmp_path):
    server.pages["/a"] = Page(location="/a")
    with pytest.raises(NoMirrorError):
        get(server, tmp_path, "/a")


def test_a_server_that_sends_nothing_times_out(server, tmp_path):
    server.pages["/a"] = Page(BODY, pause=3)
    with pytest.raises(NoMirrorError):
        download(
            [server.url("/a")], tmp_path / "file.bin", digest=SHA, policy=Policy(timeout=0.3, attempts=2, pause=0.01)
        )


def test_an_answer_longer_than_the_published_file_stops_early(server, tmp_path):
    server.pages["/a"] = Page(BODY, lie=1000)
    with pytest.raises(NoMirrorError):
        get(server, tmp_path, "/a", size=1000)
    assert only(tmp_path) == []


def test_an_unreachable_host_is_asked_once(tmp_path):
    gone: set[str] = set()
    for _ in range(2):
        with pytest.raises(NoMirrorError, match=r"no-such-host\.invalid: cannot be reached"):
            download(["http://no-such-host.invalid/x"], tmp_path / "x", policy=QUICK, unreachable=gone)
    assert gone == {"no-such-host.invalid"}


def test_a_refused_connection_is_one_line(tmp_path):
    with serve() as server:
        url = server.url("/a")
    with pytest.raises(NoMirrorError):
        download([url], tmp_path / "x", policy=QUICK)


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(mirrors.shutil, "disk_usage", lambda _: usage(0, 0, 65 << 20))
    server.pages["/a"] = Page(BODY)
    with pytest.raises(FetchError, match=r"file.bin: needs 65 MiB in .* which has 65 MiB free"):
        get(server, tmp_path, "/a")
    assert only(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_leaves_nothing(server, tmp_path, monkeypatch):
    server.pages["/a"] = Page(BODY)
    real = Path.open

    def open_full(path, mode="r", *rest, **options):
        return (
            io.FileIO("/dev/full", "ab")
            if path.suffix == ".part" and "a" in mode
            else real(path, mode, *rest, **options)
        )

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(FetchError):
        get(server, tmp_path, "/a")
    assert only(tmp_path) == []


def test_a_proxy_of_the_environment_is_used(server, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", server.address)
    monkeypatch.delenv("no_proxy", raising=False)
    server.pages["http://example.invalid/a"] = Page(BODY)
    got = download(["http://example.invalid/a"], tmp_path / "file.bin", digest=SHA, policy=QUICK)
    assert got.read_bytes() == BODY


@pytest.mark.parametrize("url", ["no-scheme/x", "http://[::1/x"])
def test_an_address_that_is_none_is_one_line(tmp_path, url):
    with pytest.raises(NoMirrorError):
        download([url], tmp_path / "x", policy=QUICK)


def test_a_proxy_whose_name_is_none_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://bad..host:80")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(NoMirrorError):
        download(["http://example.invalid/a"], tmp_path / "x", policy=QUICK)


def test_a_killed_download_is_resumed_by_the_next_process(server, tmp_path):
    server.pages["/a"] = Page(BODY, pause=0.05)
    script = (
        "import sys; from pathlib import Path; from asrnorm.data.download.mirrors import download;"
        f"download([{server.url('/a')!r}], Path({str(tmp_path / 'file.bin')!r}), digest={SHA!r})"
    )
    source = Path(__file__).parents[4] / "src"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(source)})
    part = tmp_path / "file.bin.part"
    deadline = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size >= 200_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    have = part.stat().st_size
    assert 200_000 <= have < len(BODY)
    assert not (tmp_path / "file.bin").exists()
    server.pages["/a"].pause = 0
    assert get(server, tmp_path, "/a").read_bytes() == BODY
    assert server.requests[-1][1]["Range"] == f"bytes={have}-"
    assert only(tmp_path) == ["file.bin"]


def test_nothing_leads_from_https_down_to_http():
    def follow(before, after):
        return mirrors._Redirects().redirect_request(Request(before), None, 302, "Found", {}, after)

    with pytest.raises(mirrors._MirrorError):
        follow("https://a.example/x", "http://a.example/x")
    assert follow("http://a.example/x", "https://a.example/x").full_url == "https://a.example/x"
    assert follow("https://a.example/x", "https://b.example/x").full_url == "https://b.example/x"


@pytest.mark.parametrize("size", [1000, None])
def test_a_server_that_announces_nothing_and_sends_too_much_is_left(server, tmp_path, monkeypatch, size):
    monkeypatch.setattr(mirrors, "MAX_BYTES", 1000)
    server.pages["/a"] = Page(BODY, lie=-1)
    with pytest.raises(NoMirrorError):
        get(server, tmp_path, "/a", size=size)
    assert (tmp_path / "file.bin.part").stat().st_size <= 1000
    assert not (tmp_path / "file.bin").exists()


def test_a_server_that_announces_more_than_any_data_set_is_left(server, tmp_path):
    server.pages["/a"] = Page(BODY, lie=1 << 40)
    with pytest.raises(NoMirrorError):
        get(server, tmp_path, "/a")
    assert only(tmp_path) == []


@pytest.fixture
def part(tmp_path):
    return PartialFile(tmp_path / "file.bin")


def test_the_validator_counts_for_its_own_url_only(part):
    part.record("http://a/", {"ETag": '"v1"'})
    assert part.validator("http://a/") == '"v1"'
    assert part.validator("http://b/") == ""


def test_a_weak_tag_gives_way_to_the_date(part):
    part.record("http://a/", {"ETag": 'W/"v1"', "Last-Modified": "Mon"})
    assert part.validator("http://a/") == "Mon"
    part.record("http://a/", {})
    assert part.validator("http://a/") == ""


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": "http://a/"}', "null", "\x00"])
def test_a_damaged_note_is_ignored(part, tmp_path, note):
    (tmp_path / "file.bin.part.json").write_text(note)
    assert part.validator("http://a/") == ""


def test_installing_gives_the_final_name_and_discarding_leaves_nothing(part, tmp_path):
    part.path.write_bytes(b"abc")
    part.record("http://a/", {})
    assert len(part) == 3
    part.install()
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]
    part.path.write_bytes(b"abc")
    part.record("http://a/", {})
    part.discard()
    assert len(part) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]
