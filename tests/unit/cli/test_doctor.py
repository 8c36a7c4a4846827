"""What `asrnorm doctor` prints of what it finds."""

import pytest
from typer.testing import CliRunner

from asrnorm.cli import doctor
from asrnorm.cli.main import app
from asrnorm.diagnosis import Finding


@pytest.mark.parametrize(
    ("required", "word", "fine"),
    [(False, "optional", True), (True, "missing", False)],
)
def test_what_nothing_needs_is_optional(monkeypatch, required, word, fine):
    ray = Finding("ray", "missing", "no runs on a Ray cluster", "pip install 'asrnorm[ray]'", required=required)
    monkeypatch.setattr(doctor, "examine", lambda: [ray])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == (0 if fine else 1)
    assert word in done.stdout.splitlines()[1]
    assert ("All that every command needs is there" in done.stdout) is fine
    assert done.stdout.splitlines()[-1] == "Installed from a checkout, asrnorm[...] is .[...] in its folder."
