"""`asrnorm data list`: what is there and what is missing, for people and for programs."""

import json

import typer
from typer.testing import CliRunner

from asrnorm.cli.data_list import list_data
from helpers.published import write_cifar_binary, write_mnist

app = typer.Typer()
app.command()(list_data)


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_json_has_a_row_a_part(tmp_path):
    write_mnist(tmp_path, num_train=1, num_test=1)
    rows = json.loads(run("--root", str(tmp_path), "--json"))
    states = {(row["suite"], row["part"]): row["present"] for row in rows}
    assert states["digits", "mnist"] is True
    assert states["digits", "syn"] is False
    assert states["cifar10c", "fog"] is False
    assert states["pacs", "photo"] is False
    assert {suite for suite, _ in states} == {"cifar10c", "digits", "digits_mini", "folder", "pacs"}


def test_the_table_folds_long_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    write_cifar_binary(tmp_path, count=1)
    output = run()
    assert str(tmp_path) in output
    assert "gaussian_noise ... (19)" in output
    assert output.count("cifar10c") == 2  # the suite's name once, and once in what to type
    assert "asrnorm data fetch mnist" in output
