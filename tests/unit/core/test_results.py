"""Results: what is written reads back as itself, whole or not at all."""

import dataclasses
import json
import math

import pytest

from asrnorm.core import files as storage
from asrnorm.core.errors import InputError
from asrnorm.core.results import (
    SCHEMA,
    DomainScore,
    RunResult,
    parse_result,
    read_log_rows,
    read_result,
    seal,
    to_plain,
    write_result,
)

SCORE = DomainScore(name="svhn", accuracy=0.5, brier=0.06, brier_sum=0.6, nll=1.5, ece=0.1, num_samples=26032)
RESULT = RunResult(
    recipe="digits.rsda_asr",
    scale="paper",
    seed=3,
    config_hash="0123456789",
    commit="abc",
    selection="last",
    num_parameters=4_583_290,
    source=dataclasses.replace(SCORE, name="mnist", accuracy=0.99),
    domains=(SCORE, dataclasses.replace(SCORE, name="gaussian_noise/3")),
    missing=("syn",),
    average_accuracy=0.5,
    adversarial={"fgsm/8": 0.125},
    wall_seconds=1.5,
    steps=1_000_000,
)

RUN_FIELDS = [
    *("recipe", "scale", "seed", "config_hash", "commit", "selection", "num_parameters", "source", "domains"),
    *("missing", "average_accuracy", "adversarial", "wall_seconds", "steps"),
]


def test_a_result_reads_back_as_itself(tmp_path):
    write_result(tmp_path / "result.json", RESULT)
    assert read_result(tmp_path / "result.json") == RESULT


def test_the_file_has_the_published_schema(tmp_path):
    write_result(tmp_path / "result.json", RESULT)
    values = json.loads((tmp_path / "result.json").read_text())
    assert list(values) == ["schema", *RUN_FIELDS]
    assert list(values["domains"][0]) == ["name", "accuracy", "brier", "brier_sum", "nll", "ece", "num_samples"]
    assert values["schema"] == SCHEMA == 1
    assert values["missing"] == ["syn"]


def test_validation_is_written_where_there_is_one(tmp_path):
    result = dataclasses.replace(RESULT, validation={"source-val": 0.5})
    write_result(tmp_path / "result.json", result)
    assert list(json.loads((tmp_path / "result.json").read_text())) == ["schema", *RUN_FIELDS, "validation"]
    assert read_result(tmp_path / "result.json") == result


def test_an_origin_is_written_where_there_is_one(tmp_path):
    known = dataclasses.replace(RESULT, origin={"device": "NVIDIA H200", "day": "2026-11-16"})
    write_result(tmp_path / "result.json", known)
    assert json.loads((tmp_path / "result.json").read_text())["origin"] == known.origin
    assert read_result(tmp_path / "result.json") == known
    assert "origin" not in to_plain(RESULT)


def test_numbers_survive_to_the_last_bit(tmp_path):
    domains = tuple(dataclasses.replace(domain, accuracy=1 / 3) for domain in RESULT.domains)
    result = dataclasses.replace(RESULT, domains=domains, average_accuracy=1 / 3, wall_seconds=0.1 + 0.2)
    write_result(tmp_path / "result.json", result)
    assert read_result(tmp_path / "result.json").average_accuracy == 1 / 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda values: values["domains"][0].update(accuracy=1.7), "accuracy"),
        (lambda values: values["source"].update(accuracy=-0.1), "accuracy"),
        (lambda values: values.update(average_accuracy=0.01), "average_accuracy"),
        (lambda values: values["domains"][0].update(brier=math.nan), "brier"),
        (lambda values: values["domains"][0].update(brier_sum=2.1), "brier_sum"),
        (lambda values: values["source"].update(ece=7.0), "ece"),
        (lambda values: values["source"].update(nll=math.inf), "nll"),
        (lambda values: values["source"].update(nll=-3.0), "nll"),
        (lambda values: values["source"].update(num_samples=0), "images"),
        (lambda values: values.update(adversarial={"fgsm-1": 4.0}), "fgsm-1"),
        (lambda values: values.update(validation={"source-val": 9.0}), "source-val"),
        (lambda values: values.update(wall_seconds=-1.0), "wall_seconds"),
        (lambda values: values.update(wall_seconds=math.inf), "wall_seconds"),
        (lambda values: values.update(steps=-5), "steps"),
    ],
)
def test_numbers_outside_their_range_are_an_error_that_names_them(tmp_path, change, named):
    values = to_plain(RESULT)
    change(values)
    (tmp_path / "result.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=named):
        read_result(tmp_path / "result.json")


def test_nothing_but_the_whole_file_is_ever_there(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_result(path, RESULT)
    newer = dataclasses.replace(RESULT, seed=4)

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises(OSError, match=r"result\.json: No space left on device"):
        write_result(path, newer)
    assert read_result(path) == RESULT
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_run_that_is_not_done_says_so(tmp_path):
    with pytest.raises(InputError, match="no result; the run is not done"):
        read_result(tmp_path / "result.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ('{"schema": 1,', "damaged"),
        ("[]", "not a result of schema 1"),
        ("{}", "not a result of schema 1"),
        ('{"schema": 2}', "not a result of schema 1"),
        ('{"schema": 1}', "not a whole result"),
        ('{"schema": 1, "source": {"name": "x"}, "domains": [], "missing": []}', "not a whole result"),
        ('{"schema": 1, "source": null, "domains": [], "missing": []}', "not a whole result"),
    ],
)
def test_a_damaged_result_is_refused_by_its_name(tmp_path, text, message):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_result(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("field", RUN_FIELDS)
def test_a_result_without_one_of_its_fields_is_refused(tmp_path, field):
    path = tmp_path / "result.json"
    write_result(path, RESULT)
    values = json.loads(path.read_text())
    del values[field]
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=f"not a whole result.*{field}"):
        read_result(path)


def test_a_field_of_a_later_version_is_refused_by_name(tmp_path):
    path = tmp_path / "result.json"
    write_result(path, RESULT)
    path.write_text(json.dumps({**json.loads(path.read_text()), "extra": 1}))
    with pytest.raises(InputError, match=r"not a whole result.*extra"):
        read_result(path)


@pytest.mark.parametrize(
    ("place", "value"), [("accuracy", "0.5"), ("num_samples", 1.5), ("accuracy", True), ("name", 3)]
)
def test_a_score_of_the_wrong_type_is_refused(tmp_path, place, value):
    path = tmp_path / "result.json"
    write_result(path, RESULT)
    values = json.loads(path.read_text())
    values["domains"][0][place] = value
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=f"{place} must be"):
        read_result(path)


def test_a_folder_in_place_of_a_result_is_one_line(tmp_path):
    with pytest.raises(InputError, match="Is a directory"):
        read_result(tmp_path)


def test_without_a_target_the_average_is_null_for_every_reader_of_json(tmp_path):
    write_result(tmp_path / "result.json", dataclasses.replace(RESULT, domains=(), average_accuracy=math.nan))
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(word))["average_accuracy"] is None
    assert math.isnan(read_result(tmp_path / "result.json").average_accuracy)


def test_a_line_that_was_cut_short_ends_the_log_whatever_follows(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo\n{"step": 3, "loss": 1.0}\n')
    assert [row["step"] for row in read_log_rows(path)] == [1]


@pytest.mark.parametrize("origin", [{}, {"device": "NVIDIA H200"}], ids=["a run's", "a kept line"])
def test_no_single_bit_flip_changes_what_a_sealed_result_says(origin):
    sealed = seal(dataclasses.replace(RESULT, weights_sha256="a" * 64, config_sha256="b" * 64))
    data = json.dumps(to_plain(dataclasses.replace(sealed, origin=origin))).encode()
    assert parse_result(json.loads(data), "here") == dataclasses.replace(sealed, origin=origin)
    changed = []
    for bit in range(0, 8 * len(data), 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = parse_result(json.loads(damaged), "here")
        except ValueError:
            continue
        if dataclasses.replace(found, origin={}) != sealed:
            changed.append(bytes(damaged))
    assert changed == []


def test_results_from_before_checksums_are_written_as_they_were_read():
    old = to_plain(RESULT)
    assert not any(name.endswith("_sha256") for name in old)
    assert to_plain(parse_result(old, "here")) == old
