import json

import pytest
from typer.testing import CliRunner

from asrnorm.cli.bench import bench_app


def test_bench_data_prints_a_table_and_writes_json(tmp_path):
    file = tmp_path / "data.json"
    arguments = ["data", "--only", "cifar crop", "--quick", "--device", "cpu", "--workers", "0", "--json", str(file)]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "pillow, one by one" in result.output
    rows = json.loads(file.read_text())["rows"]
    assert {row["path"] for row in rows} >= {"pillow, one by one", "tensors, CPU"}
    assert all(row["baseline"] == "pillow, one by one" for row in rows)


def test_importing_the_command_does_not_load_torch():
    import subprocess
    import sys

    code = "import sys, asrnorm.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["layers", "--only", "conv 2"], "asr, reference"),
        (["step", "--only", "demo"], "bn, eager"),
        (["corruptions", "--only", "contrast, 32"], "numpy, all cores"),
        (["evaluate"], "asr, on the device"),
        (["train", "--only", "digits", "--made"], "trainer"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_suite_prints_and_writes(arguments, expected, tmp_path):
    file = tmp_path / "rows.json"
    result = CliRunner().invoke(bench_app, [*arguments, "--quick", "--device", "cpu", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert expected in result.output
    content = json.loads(file.read_text())
    assert content["suite"] == arguments[0]
    assert expected in {row["path"] for row in content["rows"]}


def test_a_name_that_fits_nothing_is_answered_with_those_there_are():
    result = CliRunner().invoke(bench_app, ["step", "--quick", "--device", "cpu", "--only", "vgg"])
    assert result.exit_code != 0
    assert "--only 'vgg' fits none of: demo ConvNet, batch 4" in str(result.exception)
