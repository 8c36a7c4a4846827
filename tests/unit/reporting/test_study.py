import re
from dataclasses import replace
from pathlib import Path

import pytest

from asrnorm.reporting.sheet import build_sheet
from asrnorm.reporting.study import render_study, write_report
from asrnorm.studies import collect, get_study, list_studies
from helpers.html_table import read_tables
from helpers.made_up_run import make_up_runs
from helpers.small_study import collect_small, small_study

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_all_formats_are_written_and_the_page_comes_last(small, tmp_path):
    paths = write_report(small, tmp_path / "out")
    names = [path.relative_to(tmp_path / "out").as_posix() for path in paths]
    assert names == ["small.md", "small.csv", "small.tex", "small-table.tex", "small.html"]
    assert all(path.stat().st_size for path in paths)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(names)


def test_a_figure_without_numbers_is_named_and_an_old_one_is_taken_away(small, tmp_path):
    old = tmp_path / "figures" / "tsne.png"
    old.parent.mkdir()
    old.write_bytes(b"of an earlier report")
    paths = write_report(replace(small, study=replace(small.study, figures=("tsne",))), tmp_path)
    assert "Figure tsne is missing" in paths[-1].read_text()
    assert not old.exists()


@pytest.mark.parametrize("name", list_studies())
def test_every_study_has_a_report_before_anything_is_run(name, tmp_path):
    page = write_report(collect(get_study(name), runs=tmp_path / "runs", scale="smoke", seeds=[0]), tmp_path)[-1]
    text = page.read_text()
    assert text.count("missing") or name == "fig-samples"
    assert "Nothing is measured yet" in text


def test_two_commits_in_one_table_are_warned_of(tmp_path):
    study = small_study()
    for seed, commit in ((0, "a" * 40), (1, "b" * 40)):
        make_up_runs(study, tmp_path / "runs", seeds=[seed], commit=commit)
    found = collect(study, runs=tmp_path / "runs", scale="smoke", seeds=[0, 1])
    page = write_report(found, tmp_path / "out")[-1].read_text()
    assert re.search(r'class="warn".*2 commits.*aaaaaaaaaaaa, bbbbbbbbbbbb', page, re.DOTALL)


def test_the_same_results_give_the_same_bytes(tmp_path):
    found = collect_small(tmp_path / "runs")
    first, second = (write_report(found, tmp_path / name) for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()


def render(collected):
    return render_study(build_sheet(collected), {}, {})


def table_of(collected, kind, index=0):
    return read_tables(render(collected), kind)[index]


@pytest.fixture
def text(small):
    return render(small)


def test_every_cell_has_ours_the_papers_the_difference_n_and_p(small):
    cell = table_of(small, "cells").line("RSDA + ASR-Norm")["SVHN"]
    measured = small.cells["RSDA + ASR-Norm", "SVHN"]
    numbers = f"{measured.mean:.1f} ± {measured.deviation:.1f} paper 52.8 ± 3.8 +{measured.mean - 52.8:.1f} · n 3 · p "
    assert cell.text.startswith(numbers)
    assert re.search(r"p (<|=) 0\.\d+$", cell.text)
    assert cell.titles[-1].endswith("against RSDA")
    assert cell.attributes["data-sort"] == str(measured.mean)


def test_a_cell_with_several_runs_links_to_each(tmp_path):
    study = get_study("table3")
    make_up_runs(study, tmp_path, seeds=[0])
    line = table_of(collect(study, runs=tmp_path, scale="smoke", seeds=[0]), "cells").line("RSC + ASR-Norm")
    first, *each = line["Avg."].links
    assert first == each[0]
    assert len(set(each)) == 4
    assert len(line["Photo"].links) == 1


def test_cells_sort_by_their_numbers_and_gaps_by_nothing(small):
    table = table_of(small, "long", -1)
    line = table.line("ERM", "SVHN")
    measured = small.cells["ERM", "SVHN"]
    keys = [line[head].attributes["data-sort"] for head in ("ours", "deviation", "n", "paper", "difference")]
    numbers = [measured.mean, measured.deviation, measured.n, 27.8, measured.mean - 27.8]
    assert [float(key) for key in keys] == numbers
    assert line["p"].attributes["data-sort"] == ""
    missing = table.line("ADA", "SVHN")["ours"]
    assert (missing.text, missing.attributes["data-sort"]) == ("missing", "")


def test_columns_that_nothing_is_in_are_left_out(small):
    rows = tuple(replace(row, not_run=None) for row in small.study.rows if row.label != "CCSA")
    bare = replace(small, study=replace(small.study, rows=rows, comparisons=()), printed={}, tests=())
    assert table_of(bare, "long").heads == ["row", "column", "ours", "deviation", "n"]
    single = {key: replace(cell, deviation=None) for key, cell in small.cells.items()}
    untested = tuple(replace(test, pooled=None) for test in small.tests)
    found = replace(small, cells=single, tests=untested)
    assert table_of(found, "long", -1).heads == ["row", "column", "ours", "n", "paper", "difference"]


def test_missing_cells_and_rows_that_are_not_run_are_seen(small):
    layout, details = table_of(small, "cells"), table_of(small, "long", -1)
    for cell in (layout.line("ADA")["SVHN"], details.line("ADA", "SVHN")["ours"]):
        assert "missing" in cell.attributes["class"].split()
        assert cell.text.startswith("missing")
    assert layout.line("CCSA not run: no public code")["SVHN"].text == "paper 25.9 1"
    assert details.line("CCSA", "SVHN")["ours"].text == "not run"


def test_a_diverged_cell_says_at_which_seeds(small):
    cell = table_of(replace(small, diverged={("ADA", "SVHN"): (0, 2)}), "cells").line("ADA")["SVHN"]
    assert cell.attributes["class"] == "diverged"
    assert cell.text == "NaN paper 35.5 NaN at seeds 0, 2"


def test_a_cell_without_data_is_hatched_and_says_so(small):
    cells = {key: cell for key, cell in small.cells.items() if key != ("ERM", "SVHN")}
    found = replace(small, cells=cells, no_data=frozenset({("ERM", "SVHN")}))
    for cell in (table_of(found, "cells").line("ERM")["SVHN"], table_of(found, "long", -1).line("ERM", "SVHN")["ours"]):
        assert "no-data" in cell.attributes["class"].split()
        assert cell.text.startswith("no data")
        assert cell.attributes["data-sort"] == ""


def test_of_several_p_values_the_highest_is_shown(small):
    first = replace(small.tests[0], pooled=0.01)
    found = replace(small, tests=(first, replace(first, against="ERM", pooled=0.25)))
    cell = table_of(found, "cells").line("RSDA + ASR-Norm")["SVHN"]
    assert cell.text.endswith("p ≤ 0.250")
    assert cell.titles[-1] == "0.010 against RSDA; 0.250 against ERM"
    line = table_of(found, "long", -1).line("RSDA + ASR-Norm", "SVHN")
    assert (line["p"].text, line["against"].text) == ("0.010 0.250", "RSDA ERM")


def test_p_values_stand_under_their_heads_beside_the_papers(small):
    first = replace(small.tests[0], pooled=0.1, welch=0.2, paired=0.3, holm=0.4)
    table = table_of(replace(small, tests=(first, *small.tests[1:])), "long")
    assert len(table.lines) == 4
    line = table.line("RSDA + ASR-Norm", "SVHN", "RSDA")
    shown = [line[head].text for head in ("pooled", "Welch", "paired", "Holm", "paper")]
    assert shown == ["0.100", "0.200", "0.300", "0.400", "0.036"]
    assert line["paper"].attributes["data-sort"] == "0.036"
    assert table.line("RSDA + ASR-Norm", "USPS", "RSDA")["paper"].text == "< 0.001"


def test_comparisons_have_no_columns_that_nothing_is_in(small):
    nothing = {"low": None, "high": None, "pooled": None, "welch": None, "paired": None, "holm": None}
    few = replace(small, tests=tuple(replace(test, **nothing) for test in small.tests))
    assert table_of(few, "long").heads == ["row", "column", "against", "difference", "n", "paper"]
    pairs = tuple(replace(pair, printed={}) for pair in few.study.comparisons)
    bare = replace(few, study=replace(few.study, comparisons=pairs))
    assert "paper" not in table_of(bare, "long").heads


def test_nothing_is_said_of_p_values_that_are_not_there(small, text):
    said = "p: one-sided two-sample t-test"
    assert said in text
    assert said not in render(replace(small, tests=tuple(replace(test, pooled=None) for test in small.tests)))


def test_links_inside_the_page_lead_somewhere(text):
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(names)) == len(names)
    targets = re.findall(r'href="#([^"]+)"', text)
    assert len(targets) > 20
    assert set(targets) <= set(names)


def test_footnotes_say_what_is_copied_and_what_slipped_under_their_numbers(small, text):
    assert '<li id="note-1" value="1">The paper&#39;s number is copied from M-ADA.</li>' in text
    assert '<li id="note-2" value="2">It averages to 65.3.</li>' in text
    assert table_of(small, "cells").line("ERM")["SVHN"].links[-1] == "#note-1"


def test_runs_have_their_config_and_curves(text):
    runs = text[text.index('<h2 id="runs">') :]
    assert runs.count('<section class="run"') == 4
    assert runs.count('<svg class="spark"') == 8
    assert runs.count("<polyline") == 24
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
