"""Names, hashes and environments that attack whoever opens a report, in each of its formats."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from asrnorm.cli.main import main
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result, write_result
from asrnorm.reporting.folder import collect_folder
from asrnorm.reporting.sheet import build_sheet
from asrnorm.reporting.study import render_study, write_report
from asrnorm.studies import collect
from helpers.hostile_run import SCRIPT, make_hostile_runs
from helpers.made_up_run import make_up_runs
from helpers.small_study import small_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_hostile_runs(tmp_path_factory.mktemp("hostile") / '<b onclick="x">[runs](javascript:1)')


@pytest.fixture(scope="module")
def texts(runs):
    files = write_report(collect_folder(runs), runs.parent / "out")
    return {path.name: path.read_text() for path in files if path.suffix in (".md", ".csv", ".tex", ".html")}


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_html_has_no_tag_attribute_or_link_of_a_run(texts):
    tags = Tags(texts["report.html"]).found
    assert [tag for tag, _ in tags].count("script") == 1
    assert not [tag for tag, _ in tags if tag in ("img", "b", "javascript:alert(2)")]
    attributes = {name for _, attributes in tags for name in attributes}
    assert not [name for name in attributes if name.startswith("on")]
    links = [attributes["href"] for _, attributes in tags if "href" in attributes]
    assert all(link.startswith(("#", "data:,")) for link in links)


def test_a_record_made_by_hand_cannot_add_a_tag_either(small):
    def attack(record):
        return replace(record, result=replace(record.result, config_hash=SCRIPT, commit=SCRIPT))

    cells = {key: replace(cell, records=tuple(map(attack, cell.records))) for key, cell in small.cells.items()}
    tags = Tags(render_study(build_sheet(replace(small, cells=cells)), {}, {SCRIPT: SCRIPT}, [SCRIPT])).found
    assert [tag for tag, _ in tags].count("script") == 1
    assert not [tag for tag, _ in tags if tag == "img"]


def test_a_figure_draws_labels_as_they_are(tmp_path):
    runs = make_hostile_runs(tmp_path / "runs")
    for folder in runs.iterdir():
        result = read_result(folder / "result.json")
        domains = [replace(domain, name=f"{SCRIPT}/{i}") for i, domain in enumerate(result.domains, start=1)]
        write_result(folder / "result.json", replace(result, domains=tuple(domains)))
    files = write_report(collect_folder(runs), tmp_path / "out")
    drawn = next(path for path in files if path.suffix == ".svg").read_text()
    assert "OWNED" not in re.sub("<!--.*?-->", "", drawn, flags=re.DOTALL)
    assert [tag for tag, _ in Tags(files[-1].read_text()).found].count("script") == 1


def test_only_the_script_of_the_page_itself_may_run(texts):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', texts["report.html"]).group(1)
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert re.fullmatch(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", scripts)


def test_markdown_has_no_raw_html_and_no_link(texts):
    text = texts["report.md"].replace("<br>", "")  # our own, between the lines of a cell
    assert not re.search(r"<[A-Za-z/!?]", text)
    assert not re.search(r"\][(\[]", text)
    assert not re.search(r"^# b", text, re.MULTILINE)


def test_csv_has_no_formula(texts):
    cells = [cell for line in csv.reader(io.StringIO(texts["report.csv"])) for cell in line]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@")) and not is_number(cell)]


def is_number(text):
    return all(re.fullmatch(r"-?[\d.]+(e-?\d+)?", word) for word in text.split())


def test_latex_has_no_command_of_a_run(texts):
    assert r"\input{/etc" not in texts["report.tex"]
    assert r"\textbackslash{}input" in texts["report.tex"]


def test_the_terminal_gets_no_control_sequence(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    assert main(["report", str(runs), "--out", "said"]) == 0
    shown = capsys.readouterr()
    assert "\\x1b]0;OWNED" in shown.out + shown.err
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.out + shown.err)


@pytest.mark.parametrize(
    "config_hash", [SCRIPT, '" onclick="alert(1)', "../../../etc", "0123456789\n", "0123456789ab", "ABCDEF0123", ""]
)
def test_a_hash_that_is_none_is_refused_wherever_a_result_is_read(config_hash, tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    make_up_runs(small_study(), runs)
    victim = sorted(runs.iterdir())[0]
    values = json.loads((victim / "result.json").read_text()) | {"config_hash": config_hash}
    (victim / "result.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="is not the hash of a config") as caught:
        read_result(victim / "result.json")
    assert "\n" not in str(caught.value)
    (warning,) = [warning for warning in collect_folder(runs).warnings if "hash of a config" in warning]
    assert victim.name in warning
    kept.mkdir()
    (kept / "small.jsonl").write_text(json.dumps(values) + "\n")
    found = collect(small_study(), runs=tmp_path / "none", kept=kept, scale="smoke", seeds=[0])
    assert not found.cells
    assert any("hash of a config" in warning for warning in found.warnings)
