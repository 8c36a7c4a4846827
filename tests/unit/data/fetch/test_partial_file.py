import pytest

from asrnorm.data.fetch.partial_file import PartialFile


@pytest.fixture
def part(tmp_path):
    return PartialFile(tmp_path / "file.bin")


def test_the_validator_counts_for_its_own_url_only(part):
    part.remember("http://a/", {"ETag": '"v1"'})
    assert part.validator("http://a/") == '"v1"'
    assert part.validator("http://b/") == ""


def test_a_weak_tag_gives_way_to_the_date(part):
    part.remember("http://a/", {"ETag": 'W/"v1"', "Last-Modified": "Mon"})
    assert part.validator("http://a/") == "Mon"
    part.remember("http://a/", {})
    assert part.validator("http://a/") == ""


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": "http://a/"}', "null", "\x00"])
def test_a_damaged_note_is_no_note(part, tmp_path, note):
    (tmp_path / "file.bin.part.json").write_text(note)
    assert part.validator("http://a/") == ""


def test_settling_gives_the_final_name_and_discarding_leaves_nothing(part, tmp_path):
    part.path.write_bytes(b"abc")
    part.remember("http://a/", {})
    assert len(part) == 3
    part.settle()
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]
    part.path.write_bytes(b"abc")
    part.remember("http://a/", {})
    part.discard()
    assert len(part) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]
