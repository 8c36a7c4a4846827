import dataclasses
import json
from statistics import fmean

import pytest

from asrnorm.core.config import content_hash, override
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result, write_result
from asrnorm.recipes import recipe
from asrnorm.reporting.folder import DASHED, collect_folder, label_rows
from asrnorm.reporting.sheet import build_sheet
from asrnorm.reporting.study import write_report
from asrnorm.studies import get_study
from asrnorm.studies.plan import iterate_specs
from helpers.made_up_run import make_up_divergence, make_up_runs
from helpers.small_study import small_study

NAME = "digits_mini.erm_asr"


@pytest.fixture
def runs(tmp_path):
    make_up_runs(small_study(), tmp_path / "runs")
    return tmp_path / "runs"


def test_a_folder_of_runs_is_a_table_of_recipe_by_domain(runs, tmp_path):
    found = collect_folder(runs)
    labels = [row.label for row in found.study.rows]
    assert labels == sorted(labels)
    assert "digits.rsda_asr" in labels
    assert found.study.columns == ("unseen, average", "source", "svhn", "mnist_m", "syn", "usps")
    cell = found.cells["digits.rsda_asr", "svhn"]
    assert (cell.n, cell.seeds) == (3, (0, 1, 2))
    assert [warning.partition(";")[0] for warning in found.warnings] == ["smoke scale only shows that everything runs"]
    text = write_report(found, tmp_path / "out")[-1].read_text()
    assert "selection last" in text
    assert "recipe: digits.rsda_asr" in text


def test_the_report_of_a_folder_says_nothing_of_a_paper(tmp_path):
    make_up_runs(small_study(), tmp_path / "runs", scale="paper")
    files = write_report(collect_folder(tmp_path / "runs"), tmp_path / "out")
    for path in files:
        if path.suffix in (".md", ".tex"):
            assert "paper" not in path.read_text().lower()
    markdown = next(path for path in files if path.suffix == ".md").read_text()
    assert "| row | column | ours | n |\n| --- | --- | ---: | ---: |\n" in markdown
    assert "Mean ± standard deviation (n - 1); our best in bold." in markdown
    shown = files[-1].read_text().partition('<h2 id="runs">')[0].partition("<body>")[2]  # not the configs
    assert "paper" not in shown
    make_up_runs(small_study(), tmp_path / "short", scale="short")
    markdown = next(path for path in write_report(collect_folder(tmp_path / "short"), tmp_path) if path.suffix == ".md")
    assert "Mean ± standard deviation (n - 1), short scale;" in markdown.read_text()


def test_one_run_is_a_folder_of_one(runs):
    found = collect_folder(next(iter(sorted(runs.iterdir()))))
    assert len(found.study.rows) == 1
    assert found.study.caption.startswith("1 finished run; ")
    assert any("fewer than 3 seeds" in warning for warning in found.warnings)


def test_mixed_scales_and_commits_are_warned_of(runs):
    make_up_runs(small_study(), runs, scale="short", seeds=[0], commit="c" * 40)
    warnings = " ".join(collect_folder(runs).warnings)
    assert "2 scales" in warnings
    assert "2 commits" in warnings


def test_scales_below_the_papers_are_warned_of(tmp_path):
    make_up_runs(small_study(), tmp_path, scale="paper")
    assert not collect_folder(tmp_path).warnings
    make_up_runs(small_study(), tmp_path, scale="short", seeds=[0])
    warnings = collect_folder(tmp_path).warnings
    assert any(warning.startswith("short scale has fewer steps than the paper") for warning in warnings)
    assert not any(warning.startswith("smoke scale") for warning in warnings)


def stop(folder):
    """Leave of a run what there is of it before it is done."""
    (folder / "result.json").unlink()


def test_runs_that_are_not_done_are_left_out_and_named(runs):
    first, second, *_ = sorted(runs.iterdir())
    stop(first)
    line = f"1 run is not done and left out: {first.name}; asrnorm train resumes it"
    assert line in collect_folder(runs).warnings
    stop(second)
    line = f"2 runs are not done and left out: {first.name}, {second.name}; asrnorm train resumes them"
    assert line in collect_folder(runs).warnings


def test_of_many_runs_that_are_not_done_some_are_named(tmp_path):
    make_up_runs(small_study(), tmp_path)
    *stopped, _ = sorted(tmp_path.iterdir())
    for folder in stopped:
        stop(folder)
    (line,) = [warning for warning in collect_folder(tmp_path).warnings if "not done" in warning]
    assert line.startswith(f"{len(stopped)} runs are not done and left out: {stopped[0].name}, ")
    assert f"{stopped[4].name} and {len(stopped) - 5} more; " in line
    assert stopped[5].name not in line


def test_runs_that_diverged_are_left_out_and_named(runs):
    spec = next(iterate_specs(small_study()))
    before = set(runs.iterdir())
    make_up_divergence(spec, runs, 32)
    (folder,) = set(runs.iterdir()) - before
    warnings = collect_folder(runs).warnings
    assert f"1 run diverged and is left out: {folder.name}" in warnings
    assert not any("not done" in warning for warning in warnings)
    make_up_divergence(spec, runs, 33)
    assert any(warning.startswith("2 runs diverged and are left out: ") for warning in collect_folder(runs).warnings)


def test_a_run_that_diverged_and_was_tried_again_is_shown(runs):
    (sorted(runs.iterdir())[0] / "divergence.json").write_text("{}")
    assert not any("diverged" in warning for warning in collect_folder(runs).warnings)


def test_runs_that_lie_deeper_are_told_with_the_command_that_shows_them(runs):
    make_up_runs(small_study(), runs / "demo", seeds=[0])
    count = len(list((runs / "demo").iterdir()))
    line = f"{count} runs lie deeper, in {runs / 'demo'}: asrnorm report {runs / 'demo'} shows them"
    assert line in collect_folder(runs).warnings
    make_up_runs(small_study(), runs / "my demo", seeds=[0])
    (line,) = [warning for warning in collect_folder(runs).warnings if "deeper" in warning]
    assert line.endswith(f": asrnorm report {runs / 'demo'} '{runs / 'my demo'}' shows them")


def test_what_lies_inside_a_run_is_no_run_that_lies_deeper(runs):
    inside = sorted(runs.iterdir())[0] / "choice"
    inside.mkdir()
    (inside / "result.json").write_text("{}")
    assert not any("deeper" in warning for warning in collect_folder(runs).warnings)


def test_a_folder_whose_runs_are_all_left_out_says_why(runs, tmp_path):
    with pytest.raises(InputError, match=r"no finished run is in it; \d+ runs lie deeper, in .*runs: asrnorm report "):
        collect_folder(tmp_path)
    stopped = sorted(runs.iterdir())[0]
    stop(stopped)
    (stopped / "env.json").write_text("{}")
    with pytest.raises(InputError, match=r"no finished run is in it; 1 run is not done and left out: "):
        collect_folder(stopped)


def test_mixed_rules_of_selection_are_warned_of(runs):
    assert not any("rules" in warning for warning in collect_folder(runs).warnings)
    change_result(sorted(runs.iterdir())[0], selection="oracle")
    assert any("selected by 2 rules: oracle, last" in warning for warning in collect_folder(runs).warnings)


def test_a_run_of_two_commits_is_warned_of(runs):
    folder = sorted(runs.iterdir())[0]
    (folder / "env.json").write_text('{"commit": "a", "resumed": [{"commit": "bbbb"}]}')
    assert any("2 commits" in warning and "bbbb" in warning for warning in collect_folder(folder).warnings)


def test_runs_of_other_settings_are_rows_of_their_own(runs):
    folder = sorted(runs.glob("digits.rsda_asr*"))[0]
    other = runs / "other"
    other.mkdir()
    config = (folder / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("batch_size: 8", "batch_size: 4"))
    result = dataclasses.replace(read_result(folder / "result.json"), config_hash="0123456789")
    write_result(other / "result.json", result)
    labels = [row.label for row in collect_folder(runs).study.rows if "rsda_asr" in row.label]
    assert sorted(labels) == ["digits.rsda_asr, batch_size=4", "digits.rsda_asr, batch_size=8"]


def change_result(folder, **changes):
    """Change a result; its average stays that of its domains."""
    result = dataclasses.replace(read_result(folder / "result.json"), **changes)
    average = fmean(domain.accuracy for domain in result.domains)
    write_result(folder / "result.json", dataclasses.replace(result, average_accuracy=average))


def test_averages_leave_out_what_another_run_lacks(runs):
    for folder in runs.glob("digits.rsda_asr*"):
        result = read_result(folder / "result.json")
        change_result(folder, domains=result.domains[3:], missing=("svhn", "mnist_m", "syn"))
    found = collect_folder(runs)
    for row in found.study.rows:
        assert found.cells[row.label, "unseen, average"].mean == found.cells[row.label, "usps"].mean
    assert any("Not available: mnist_m, svhn, syn" in note for note in found.footnotes)
    assert not any("different domains" in warning for warning in found.warnings)
    assert found.no_data == {("digits.rsda_asr", column) for column in ("svhn", "mnist_m", "syn")}


def test_runs_on_other_domains_are_warned_of(runs):
    for folder in runs.glob("digits.rsda_asr*"):
        change_result(folder, domains=read_result(folder / "result.json").domains[:2])
    assert any("different domains" in warning for warning in collect_folder(runs).warnings)


def test_domains_of_other_suites_are_a_dash_which_the_notes_explain(runs, tmp_path):
    assert DASHED not in collect_folder(runs).footnotes
    make_up_runs(get_study("table3"), runs, seeds=[0])
    found = collect_folder(runs)
    states = {place: cell.state for place, cell in build_sheet(found).cells.items()}
    assert [states["digits.rsda_asr", column] for column in ("usps", "sketch")] == ["measured", "absent"]
    assert states["pacs.rsc_asr from photo", "photo"] == "absent"  # its source
    assert not found.no_data
    assert found.footnotes == (DASHED,)
    (page,) = [path.read_text() for path in write_report(found, tmp_path / "out") if path.suffix == ".md"]
    assert DASHED in page
    assert "no data" not in page


def test_images_that_a_run_lacked_are_no_dash(runs):
    make_up_runs(get_study("table3"), runs, seeds=[0])
    folder = next(
        path for path in sorted(runs.glob("pacs.rsc_asr--*")) if "source: photo" in (path / "config.yaml").read_text()
    )
    kept = [domain for domain in read_result(folder / "result.json").domains if domain.name != "cartoon"]
    change_result(folder, domains=tuple(kept), missing=("cartoon",))
    found = collect_folder(runs)
    assert found.no_data == {("pacs.rsc_asr from photo", "cartoon")}
    assert build_sheet(found).cells["pacs.rsc_asr from photo", "cartoon"].state == "no data"
    assert build_sheet(found).cells["digits.rsda_asr", "cartoon"].state == "absent"


def test_a_domain_called_as_a_pattern_is_itself_alone(runs):
    folder = sorted(runs.iterdir())[0]
    names = ("a*", "a[bc]", "ab", "a?")
    domains = read_result(folder / "result.json").domains
    renamed = tuple(
        dataclasses.replace(domain, name=name, accuracy=0.1 * number)
        for number, (domain, name) in enumerate(zip(domains, names, strict=True), 1)
    )
    change_result(folder, domains=renamed, missing=())
    found = collect_folder(folder)
    label = found.study.rows[0].label
    assert [found.cells[label, name].mean for name in names] == pytest.approx([10, 20, 30, 40])


def test_domains_may_have_any_name(runs):
    folder = sorted(runs.iterdir())[0]
    first, second, *rest = read_result(folder / "result.json").domains
    named = (dataclasses.replace(first, name="cam [night]"), dataclasses.replace(second, name="source", accuracy=0.1))
    change_result(folder, domains=(*named, *rest))
    found = collect_folder(folder)
    label = found.study.rows[0].label
    assert found.cells[label, "cam [night]"].mean == pytest.approx(100 * first.accuracy)
    assert found.cells[label, "source (domain)"].mean == pytest.approx(10)
    assert found.cells[label, "source"].mean == pytest.approx(100 * read_result(folder / "result.json").source.accuracy)


def test_cifar10c_is_shown_by_level(tmp_path):
    make_up_runs(get_study("table6"), tmp_path, seeds=[0])
    found = collect_folder(tmp_path)
    assert found.study.columns == ("unseen, average", "source", *(f"Level {level}" for level in range(1, 6)))
    assert found.study.figures == ("levels",)


def test_what_cannot_be_read_is_said_and_an_empty_folder_refused(runs, tmp_path):
    folder = sorted(runs.iterdir())[0]
    (folder / "result.json").write_text(json.dumps({"schema": 9}))
    assert any("schema" in warning for warning in collect_folder(runs).warnings)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no finished run"):
        collect_folder(tmp_path / "empty")
    with pytest.raises(InputError, match="no such folder"):
        collect_folder(tmp_path / "nowhere")


def labels(*changes):
    """Labels of the smoke run of one recipe under several `--set`."""
    base = recipe(NAME, scale="smoke")
    configs = [override(base, change) for change in changes]
    found = label_rows({content_hash(config): config for config in configs})
    return [found[content_hash(config)] for config in configs]


def test_a_row_alone_needs_no_settings():
    assert labels({}) == [NAME]


def test_the_fields_that_differ_are_named_as_they_were_set():
    lr = f"{recipe(NAME, scale='smoke').optim.lr:g}"
    first, second = labels({"model.hidden": 8}, {"model.hidden": 8, "method": "rsda", "optim.lr": "0.01"})
    assert first == f"{NAME}, method=erm, optim.lr={lr}"
    assert second == f"{NAME}, method=rsda, optim.lr=0.01"


def test_options_are_named_among_equal_choices_only():
    found = labels({}, {"method": "rsda"}, {"method": "rsda", "method.interval": 7})
    assert found == [
        f"{NAME}, method=erm",
        f"{NAME}, method=rsda, method.interval=default",
        f"{NAME}, method=rsda, method.interval=7",
    ]


def test_lists_and_nothing_are_written_as_in_a_setting():
    found = labels({"model.channels": "[4, 8]"}, {"model.channels": "[8, 8]"})
    assert found == [f"{NAME}, model.channels=[4, 8]", f"{NAME}, model.channels=[8, 8]"]


def test_a_row_chosen_by_the_targets_says_so_alone_and_beside_others():
    chosen = {"selection": "oracle", "evaluate_every": 1}
    assert labels(chosen) == [f"{NAME} (oracle)"]
    assert labels({}, chosen) == [NAME, f"{NAME} (oracle)"]


def test_many_fields_give_way_to_the_hash():
    change = {"optim.lr": 0.5, "optim.momentum": 0.5, "steps": 77, "batch_size": 3}
    base = recipe(NAME, scale="smoke")
    assert labels({}, change) == [f"{NAME} [{content_hash(one)}]" for one in (base, override(base, change))]


def test_one_row_with_many_fields_does_not_hide_what_the_others_are():
    many = {"optim.lr": 0.5, "optim.momentum": 0.5, "steps": 77, "batch_size": 3}
    *others, odd = labels({}, {"method": "rsda"}, {"method": "ada"}, many)
    assert others == [NAME, f"{NAME}, method=rsda", f"{NAME}, method=ada"]
    assert odd == f"{NAME} [{content_hash(override(recipe(NAME, scale='smoke'), many))}]"


def test_the_seed_and_the_device_do_not_count():
    found = labels({"device": "cpu", "seed": 1}, {"device": "auto", "seed": 2, "steps": 5})
    assert all(label.startswith(f"{NAME}, steps=") and label.count("=") == 1 for label in found)
