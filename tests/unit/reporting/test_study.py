import re
from dataclasses import replace
from pathlib import Path

import pytest

from asrnorm.reporting.study import write_report
from asrnorm.studies import collect, get_study, list_studies
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
