"""Tables of images: both kinds say the same, and every mistake is named."""

import json

import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.folder_listing import collect_classes, list_images


def listed(root):
    return [(sample.key, sample.label, sample.domain) for sample in list_images(root)]


def test_both_tables_say_the_same(tmp_path):
    rows = [("a/1.png", "dog", "photo"), ("a/2, b.png", "cat", "art")]
    (tmp_path / "t.csv").write_text('domain,path,label,extra\nphoto,a/1.png,dog,x\nart,"a/2, b.png",cat,y\n')
    lines = [json.dumps({"path": path, "label": label, "domain": domain}) for path, label, domain in rows]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert listed(tmp_path / "t.csv") == listed(tmp_path / "t.jsonl") == rows
    assert list_images(tmp_path / "t.csv")[0].path == tmp_path / "a" / "1.png"


def test_a_table_without_domains_is_one_called_by_the_files_name(tmp_path):
    (tmp_path / "north.csv").write_text("path,label\n1.png,dog\n2.png,cat\n")
    (tmp_path / "north.jsonl").write_text('{"path": "1.png", "label": "dog"}\n\n{"path": "2.png", "label": "cat"}\n')
    assert listed(tmp_path / "north.csv") == [("1.png", "dog", "north"), ("2.png", "cat", "north")]
    assert listed(tmp_path / "north.jsonl") == listed(tmp_path / "north.csv")


def test_absolute_paths_and_numbers_as_labels_are_taken(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"path": "/data/1.png", "label": 3, "domain": "x"}\n')
    sample = list_images(tmp_path / "t.jsonl")[0]
    assert (str(sample.path), sample.label) == ("/data/1.png", "3")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("t.csv", "path,domain\n1.png,art\n", "label"),
        ("t.csv", "", "path, label"),
        ("t.csv", "path,label,domain\n", ""),
        ("t.csv", "path,label,domain\n1.png,dog\n", "line 2: domain"),
        ("t.csv", "path,label,domain\n1.png, ,art\n", "line 2: label"),
        ("t.csv", "path,label,domain\n1.png,a,b\n1.png,a,b\n", "1.png"),
        ("t.csv", "path,label,domain\n1.png,a,b\n./1.png,a,b\n", "./1.png"),
        ("t.csv", "path,label,domain\n1.png,a,b\nx/../1.png,c,d\n", "1.png"),
        ("t.jsonl", '{"path": "1.png"}\n', "line 1: label"),
        (
            "t.jsonl",
            '{"path": "1.png", "label": "a", "domain": "x"}\n{"path": "2.png", "label": "a"}\n',
            "line 2: domain",
        ),
        (
            "t.jsonl",
            '{"path": "1.png", "label": "a"}\n{"path": "2.png", "label": "a", "domain": "x"}\n',
            "line 1: domain",
        ),
        ("t.jsonl", "\n[1]\n", "line 2:"),
        ("t.jsonl", "{", "line 1:"),
        ("t.txt", "some notes", ".csv or .jsonl"),
        ("t.png", "\x89PNG", ".csv or .jsonl"),
        ("t.jsonl", "[" * 100_000, "line 1:"),
        ("t.jsonl", '{"path": "1.png", "label": true, "domain": "x"}', "line 1: label"),
        ("t.jsonl", '{"path": "a\\u0000b", "label": "x", "domain": "x"}', "line 1: path"),
        ("t.jsonl", '{"path": "a/\\ud800.png", "label": "1", "domain": "a"}\n', "line 1: path"),
    ],
)
def test_a_bad_table_is_one_line_that_names_the_value(tmp_path, name, text, value):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        list_images(tmp_path / name)
    assert name in str(caught.value)
    assert value in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_in_two_unicode_forms_are_one_class_but_not_in_one_domain(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("path,label,domain\n1.png,\u00c4pfel,a\n2.png,A\u0308pfel,b\n")
    assert collect_classes(list_images(table), table) == ("\u00c4pfel",)
    table.write_text("path,label,domain\n1.png,\u00c4pfel,a\n2.png,A\u0308pfel,a\n")
    with pytest.raises(InputError):
        list_images(table)


def test_a_table_that_is_no_text_is_one_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError):
        list_images(tmp_path / "t.csv")
