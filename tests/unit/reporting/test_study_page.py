import re
from dataclasses import replace

import pytest

from asrnorm.reporting.study_page import write_study_page


@pytest.fixture
def text(small, tmp_path):
    write_study_page(tmp_path / "page.html", small, {}, {}, [])
    return (tmp_path / "page.html").read_text()


def test_every_cell_has_ours_the_papers_the_difference_n_and_p(small, text):
    table = text[text.index('<table class="cells') : text.index("</table>")]
    row = next(line for line in table.splitlines() if ">RSDA + ASR-Norm<" in line)
    measured = small.cells["RSDA + ASR-Norm", "SVHN"]
    assert f"{measured.mean:.1f}" in row
    assert "paper 52.8 ± 3.8" in row
    assert f"+{measured.mean - 52.8:.1f}" in row
    assert "n 3" in row
    assert re.search(r"p (&lt;|=) 0\.\d+", row)
    assert "against RSDA" in row


def test_nothing_is_said_of_p_values_that_are_not_there(small, text, tmp_path):
    said = "p: one-sided two-sample t-test"
    assert said in text
    untested = tuple(replace(test, pooled=None) for test in small.tests)
    write_study_page(tmp_path / "page.html", replace(small, tests=untested), {}, {}, [])
    assert said not in (tmp_path / "page.html").read_text()


def test_links_inside_the_page_lead_somewhere(text):
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(names)) == len(names)
    targets = re.findall(r'href="#([^"]+)"', text)
    assert len(targets) > 20
    assert set(targets) <= set(names)


def test_missing_cells_and_rows_that_are_not_run_are_seen(text):
    assert text.count('<td class="missing" data-sort=""><span class="state">missing</span>') == 6  # in both tables
    assert '<span class="why">not run: no public code</span>' in text


def test_footnotes_say_what_is_copied_and_what_slipped(text):
    assert '<li id="note-1">The paper&#x27;s number is copied from M-ADA.</li>' in text
    assert '<li id="note-2">It averages to 65.3.</li>' in text
    assert '27.8<sup><a href="#note-1"' in text


def test_runs_have_their_config_and_curves(text):
    runs = text[text.index('<h2 id="runs">') :]
    assert runs.count('<section class="run"') == 4
    assert runs.count('<svg class="spark"') == 8
    assert "recipe: digits.rsda_asr" in runs
    assert "<details>" in runs
    assert "<details open" not in runs


def test_the_page_is_closed_to_the_world_and_escaped(text):
    assert "default-src 'none'" in text
    assert "<h1>A &lt;small&gt; study</h1>" in text
    outside = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', text)
    assert outside == []
    assert "http:" not in text.replace("http-equiv", "")
    assert "https:" not in text
