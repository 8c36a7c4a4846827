from dataclasses import replace

import pytest

from asrnorm.core.errors import MissingDependencyError, UnknownNameError
from asrnorm.data.download import catalog
from asrnorm.data.download.verify import check, check_set
from helpers.toy_set import FILES, toy_set


def write(root, path, data):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


@pytest.fixture
def toy():
    return toy_set("http://toy.invalid{}".format)


def states(rows):
    return {row.file: row.state for row in rows}


def test_an_empty_folder_lacks_the_preferred_layout(toy, tmp_path):
    rows = check_set(tmp_path, toy)
    assert states(rows) == {"toy/one.bin": "missing", "toy/two.bin": "missing"}
    assert rows[0].detail == "a note"


def test_files_are_present_missing_or_damaged(toy, tmp_path):
    write(tmp_path, "toy/one.bin", FILES["one.bin"])
    assert states(check_set(tmp_path, toy)) == {"toy/one.bin": "present", "toy/two.bin": "missing"}
    for damaged, words in ((FILES["one.bin"][:-1], "9999 bytes"), (b"x" * 10000, "SHA256 differs"), (b"", "0 bytes")):
        write(tmp_path, "toy/one.bin", damaged)
        row = check_set(tmp_path, toy)[0]
        assert row.state == "damaged"
        assert words in row.detail


def test_a_copy_is_judged_by_its_content(toy, tmp_path):
    write(tmp_path, "toy/two.bin", b"x" * len(FILES["two.bin"]))
    assert check_set(tmp_path, toy)[1][2:] == ("present", "a copy")
    write(tmp_path, "toy/two.bin", b"x")
    row = check_set(tmp_path, toy)[1]
    assert row.state == "damaged"
    assert "another length" in row.detail


def test_one_complete_layout_is_enough_and_damage_elsewhere_is_still_told(toy, tmp_path):
    write(tmp_path, "toy-other/all.bin", b"all")
    assert states(check_set(tmp_path, toy)) == {"toy-other/all.bin": "present"}
    write(tmp_path, "toy/one.bin", b"damaged")
    assert states(check_set(tmp_path, toy)) == {"toy-other/all.bin": "present", "toy/one.bin": "damaged"}


def test_a_folder_in_place_of_a_file_is_damaged(toy, tmp_path):
    (tmp_path / "toy" / "one.bin").mkdir(parents=True)
    assert check_set(tmp_path, toy)[0].state == "damaged"


def test_an_unreadable_file_is_a_row_and_not_a_crash(toy, tmp_path, monkeypatch):
    write(tmp_path, "toy/one.bin", FILES["one.bin"])

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("asrnorm.data.download.verify.matches", refuse)
    row = check_set(tmp_path, toy)[0]
    assert row.state == "damaged"
    assert "Permission denied" in row.detail


def test_a_missing_library_is_told_in_the_row(toy, tmp_path):
    def needs_scipy(path):
        raise MissingDependencyError("pip install scipy")

    toy = replace(toy, layouts=((replace(toy.layouts[0][1], content=needs_scipy),),))
    write(tmp_path, "toy/two.bin", b"x")
    assert "pip install scipy" in check_set(tmp_path, toy)[0].detail


def test_names_are_checked_before_any_work(tmp_path):
    with pytest.raises(UnknownNameError):
        check(tmp_path, ["mnist", "nothing"])


def test_every_set_has_rows_on_an_empty_folder(tmp_path):
    rows = check(tmp_path)
    assert {row.set for row in rows} == set(catalog.CATALOG)
    assert {row.state for row in rows} == {"missing"}
