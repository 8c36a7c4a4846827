"""The fingerprint of generated images follows the code and the libraries."""

from asrnorm.data import cache as maker
from asrnorm.data.cache import describe_makers, list_absent


def test_changed_code_changes_the_description(tmp_path, monkeypatch):
    monkeypatch.setattr(maker, "_CODE", tmp_path)
    (tmp_path / "stroke.py").write_text("x = 1")
    before = describe_makers()
    assert describe_makers() == before
    (tmp_path / "stroke.py").write_text("x = 2")
    assert describe_makers()[-1] != before[-1]


def test_a_library_that_is_absent_is_named(monkeypatch):
    monkeypatch.setattr(maker, "LIBRARIES", (("no_such_module", "no-such-thing"), ("PIL", "pillow")))
    assert list_absent() == ["no-such-thing"]
    assert describe_makers()[0] == "no-such-thing absent"
