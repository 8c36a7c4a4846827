"""`asrnorm audit`: from words to a page; every bad input is one line."""

import json
from types import SimpleNamespace

import pytest

from asrnorm.audit import AuditedModule
from asrnorm.cli.audit import _choose_size
from asrnorm.cli.main import main
from asrnorm.core.errors import InputError
from helpers.audited import MODULE, ColorNet, make_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "data", per_class=3, side=16)
    (tmp_path / "nets.py").write_text(MODULE)
    return tmp_path


def call(*words):
    return main(["audit", *map(str, words), "--quick", "--device", "cpu", "--workers", "1", "--size", "16"])


def test_two_models_to_a_page_and_numbers(place, capsys):
    words = ("nets.py:net", "--against", "nets.py:random_net", "--data", "data", "--out", "out", "--json", "x/n.json")
    (place / "data" / "red" / "0.png").write_bytes(b"no image")
    assert call(*words) == 0
    shown = capsys.readouterr()
    assert "report: out/audit.html" in shown.out
    assert "skipped: data/red/0.png: cannot be read as an image" in shown.err
    values = json.loads((place / "x" / "n.json").read_text())
    assert [model["name"] for model in values["models"]] == ["nets.py:net", "nets.py:random_net"]
    assert (values["num_images"], values["severities"]) == (8, [1, 3, 5])
    assert len(values["models"][0]["corruptions"]) == 18
    before = (place / "out" / "ledger.jsonl").read_bytes()
    assert call(*words) == 0
    assert (place / "out" / "ledger.jsonl").read_bytes() == before


def test_images_are_corrupted_as_tensors_if_the_call_says_so(place):
    for word, answer in (("--no-tensors", False), ("--tensors", True)):
        assert call("nets.py:net", "--data", "data", "--out", "out", "--limit", 3, word) == 0
        values = json.loads((place / "out" / "audit.json").read_text())
        assert values.get("tensors", False) == answer
        assert len(values["models"][0]["corruptions"]) == 18


def test_a_place_where_the_numbers_cannot_go_is_told_before_the_work(place, capsys):
    assert call("nets.py:net", "--data", "data", "--out", "out", "--json", "data") == 1
    assert "data: a folder; give --json a file" in capsys.readouterr().err
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("asked", "size"),
    [([(64, 64), (96, 32)], (64, 64)), ([(32, 96), (64, 64), None], (64, 64)), ([None, None], (224, 224))],
)
def test_images_are_read_at_the_size_of_most_pixels(asked, size):
    assert _choose_size([SimpleNamespace(native_size=native) for native in asked]) == size


def test_equal_names_are_told_apart(place):
    assert call("nets.py:net", "--against", "nets.py:net", "--data", "data", "--out", "out", "--limit", 3) == 0
    values = json.loads((place / "out" / "audit.json").read_text())
    assert [model["name"] for model in values["models"]] == ["nets.py:net (A)", "nets.py:net (B)"]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (("nets.py:gone", "--data", "data"), 1, "has no function 'gone'"),
        (("nets.py:net", "--data", "gone"), 1, "gone: no such folder"),
        (("nets.py:four", "--data", "data"), 1, "the model has 4 outputs, the images 3 classes"),
        (("nets.py:nan", "--data", "data"), 1, "NaN or infinite outputs"),
        (("nets.py:net", "--data", "data", "--mean", "0.5", "0.5", "0.5"), 1, "--mean and --std belong together"),
        (("nets.py:net", "--data", "data", "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5"), 2, "not '0.5,0.5,0.5'"),
        (("nets.py:net", "--data", "data", "--mean", "0.5", "--std", "0.5"), 2, "not '--std'"),
        (("nets.py:net", "--mean", "0.5,0.5,0.5", "--data", "data"), 2, "'--mean': three numbers separated by spaces"),
        (("nets.py:net", "--data", "data", "--mean", *"000", "--std", "1", "nan", "1"), 2, "'--std': three numbers"),
        (("nets.py:net",), 2, "--data"),
        (("nets.py:net", "--data", "data", "--against-weights", "w.pt"), 2, "give --against too"),
        (("nets.py:net", "--data", "data", "--limit", "-1"), 2, "--limit"),
    ],
)
def test_bad_input_is_one_line(place, capsys, words, status, line):
    assert call(*words) == status
    error = capsys.readouterr().err
    assert line in error
    assert len(error.strip().splitlines()) == 1


def test_a_file_of_classes_that_nobody_needs_is_a_wrong_call(place, monkeypatch, capsys):
    def load_run(*words, **options):
        model = AuditedModule("run", ColorNet())
        model.class_names = ("red", "green", "blue")
        return model

    monkeypatch.setattr("asrnorm.audit.load_model", load_run)
    (place / "c.json").write_text('["blue", "green", "red"]')
    assert call("run", "--data", "data", "--classes", "c.json") == 2
    assert "leave out --classes" in capsys.readouterr().err


@pytest.mark.parametrize("quick", [True, False])
def test_the_plan_has_the_seed_and_the_limit_of_the_call(tmp_path, monkeypatch, quick):
    def look(models, images, outputs, plan, **options):
        found.append((plan.seed, plan.limit, len(plan.severities), len(images)))
        raise InputError("far enough")

    found = []
    monkeypatch.setattr("asrnorm.audit.run_audit", look)
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "data", per_class=3, side=16)
    (tmp_path / "nets.py").write_text(MODULE)
    words = ["audit", "nets.py:net", "--data", "data", "--device", "cpu", "--size", "16", "--seed", "7", "--limit", "6"]
    assert main([*words, "--quick"] if quick else words) == 1
    assert found == [(7, 6, 3 if quick else 5, 6)]
