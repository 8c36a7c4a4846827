"""The hashes beside the pins: which files of an index count, and that every pin has some."""

import hashlib
import io
import re

import pytest
from packaging.requirements import Requirement

from tools import pin_hashes
from tools.pin_hashes import FOLDER, NAMES, main, read_pins

TAKEN = (
    "my_pack-1.2-py3-none-any.whl",
    "my_pack-1.2-cp311-cp311-manylinux_2_28_x86_64.whl",
    "my_pack-1.2-cp314-cp314t-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
    "my_pack-1.2-cp39-abi3-macosx_11_0_arm64.whl",
    "my_pack-1.2.tar.gz",
)
LEFT = (
    "my_pack-1.3-py3-none-any.whl",
    "my_pack-1.2.1.tar.gz",
    "my_pack_more-1.2-py3-none-any.whl",
    "my_pack-1.2-cp310-cp310-manylinux_2_28_x86_64.whl",
    "my_pack-1.2-cp311-cp311-win_amd64.whl",
    "my_pack-1.2-cp311-cp311-musllinux_1_2_x86_64.whl",
    "my_pack-1.2-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl",
    "my_pack-1.2-cp311-cp311-macosx_10_12_x86_64.whl",
    "my_pack-1.2.zip",
    "odd.whl",
)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    def answer(address, timeout):
        assert address == "https://pypi.org/simple/my-pack/"
        links = (f'<a href="https://host/{file}#sha256={sha256(file)}">{file}</a>' for file in (*TAKEN, *LEFT))
        return io.BytesIO("\n".join(links).encode())

    monkeypatch.setattr(pin_hashes.urllib.request, "urlopen", answer)
    monkeypatch.setattr(pin_hashes, "FOLDER", tmp_path)
    monkeypatch.setattr(pin_hashes, "NAMES", ("one",))
    return tmp_path


def test_a_pin_gets_the_hashes_of_what_torch_s_platforms_can_install(folder):
    (folder / "one.txt").write_text('-r two.txt\nMy.Pack==1.2 ; platform_system == "Linux"\n')
    main([])
    first, *rows = (folder / "one.txt").read_text().replace(" \\\n", "\n").splitlines()
    assert (first, rows[0]) == ("-r two.txt", 'My.Pack==1.2 ; platform_system == "Linux"')
    assert rows[1:] == sorted(f"    --hash=sha256:{sha256(file)}" for file in TAKEN)


def test_hashes_of_wheels_from_elsewhere_are_added_and_stay(folder):
    (folder / "one.txt").write_text("my-pack==1.2\n")
    wheel = folder / "my_pack-1.2+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    wheel.write_text("own")
    main([str(wheel)])
    (hashes,) = read_pins(folder / "one.txt").values()
    assert hashes == {f"sha256:{sha256(text)}" for text in (*TAKEN, "own")}
    main([])
    assert read_pins(folder / "one.txt") == {"my-pack==1.2": hashes}


def test_a_version_that_the_index_does_not_have_changes_nothing(folder):
    (folder / "one.txt").write_text("my-pack==9.9\n")
    with pytest.raises(SystemExit):
        main([])
    assert (folder / "one.txt").read_text() == "my-pack==9.9\n"


def test_every_pin_of_the_tests_has_hashes_and_one_version():
    pages = [read_pins(FOLDER / f"{name}.txt") for name in NAMES]
    pins = {line: hashes for page in pages for line, hashes in page.items() if not line.startswith("-r ")}
    assert len(pins) > 50
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for hashes in pins.values() for value in hashes)
    assert all(pins.values())
    versions = {(found.name.lower(), str(found.specifier)) for found in map(Requirement, pins)}
    assert len(versions) == len({name for name, _ in versions})
