import json

import pytest

from asrnorm.core.errors import UnknownNameError
from asrnorm.studies import archive, collect, get_study
from helpers.made_up_run import make_up_runs
from tools.result_tables import link_sources, render_averages, render_glance, render_study, rewrite


def result(recipe, accuracy, seed):
    domain = {"name": "uci", "accuracy": accuracy}
    return {
        "recipe": recipe,
        "seed": seed,
        "scale": "paper",
        "selection": "last",
        "commit": "abc",
        "steps": 800,
        "source": {"name": "mnist", "accuracy": 0.9},
        "domains": [domain],
        "average_accuracy": accuracy,
    }


def test_a_block_is_written_from_its_file_and_the_rest_is_left_alone(tmp_path):
    rows = [result("a", 0.5, 0), result("a", 0.6, 1), result("b", 0.7, 0)]
    (tmp_path / "kept.jsonl").write_text("\n".join(map(json.dumps, rows)))
    page = "before\n<!-- results: kept.jsonl -->\nold\n<!-- end results -->\nafter"
    text = rewrite(page, tmp_path)
    assert text.startswith("before\n<!-- results: kept.jsonl -->\n| recipe | n |")
    assert "| `a` | 2 | 90.0 ± 0.0 | 55.0 ± 7.1 | 55.0 ± 7.1 |" in text
    assert "| `b` | 1 | 90.0 | 70.0 | 70.0 |" in text
    assert "old" not in text
    assert text.endswith("<!-- end results -->\nafter")
    assert rewrite(text, tmp_path) == text


def test_a_study_block_is_written_from_kept_results(tmp_path):
    runs = tmp_path / "runs"
    make_up_runs(get_study("table3"), runs, scale="short", skip=lambda spec, seed: spec.recipe == "pacs.erm_bn")
    kept = tmp_path / "results"
    kept.mkdir()
    results = [json.dumps(json.loads(path.read_text())) for path in sorted(runs.glob("*/result.json"))]
    (kept / "table3.jsonl").write_text("\n".join(results) + "\n")
    page = "before\n<!-- study: table3 short -->\nOutdated\n<!-- end study -->\nafter"
    text = rewrite(page, kept)
    fold = '<details markdown="1" open>\n<summary>At short scale, with less training</summary>'
    assert text.startswith(f"before\n<!-- study: table3 short -->\n{fold}\n\n**RSC + ASR-Norm: ")
    assert text.count("<details") == text.count("</details>") == 3
    assert "| ERM | *missing*<br>(70.9) |" in text
    assert "| RSC + ASR-Norm | RSC | Photo |" in text
    assert "n = 3 per cell" in text
    assert "Outdated" not in text
    assert text.endswith("<!-- end study -->\nafter")
    assert rewrite(text, kept) == text


def test_a_study_block_of_an_unknown_scale_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown scale 'long'"):
        rewrite("<!-- study: table3 long -->\n<!-- end study -->", tmp_path)


def test_a_study_with_some_cells_shows_n_in_each_and_the_rest_as_missing(tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "results"
    study = get_study("table3")
    make_up_runs(
        study,
        runs,
        scale="paper",
        seeds=range(5),
        skip=lambda spec, seed: (
            spec.recipe in ("pacs.erm_in", "pacs.erm_as", "pacs.erm_ar")
            or (spec.recipe == "pacs.rsc_bn" and (seed > 1 or spec.options["source"] == "sketch"))
        ),
    )
    archive(study, runs=runs, kept=kept)
    text = render_study("table3", kept)
    (rsc,) = (line for line in text.splitlines() if line.startswith("| RSC |"))
    assert rsc.count(", n 2<br>(") == 3
    assert "*missing*<br>(56.2)" in rsc
    assert "*missing*<br>(61.8)" in rsc
    assert "| ERM + IN |" + " *missing* |" * 5 in text
    assert ", n 5<br>(76.7) |" in text
    (test,) = (line for line in text.splitlines() if line.startswith("| ERM + ASR-Norm | ERM | Photo |"))
    assert "| 5, 5 |" in test
    assert "the number of seeds per cell varies from 2 to 5" in text
    assert study.footnotes[0] not in text  # it stands on the study's page


def test_where_nothing_is_kept_a_line_says_how_to_begin(tmp_path):
    page = "<!-- study: table3 -->\n<!-- end study -->\n<!-- study: table3 short -->\n<!-- end study -->"
    text = rewrite(page, tmp_path)
    assert "No results are kept at the paper's scale yet; run `asrnorm reproduce table3`" in text
    assert text.endswith("<!-- study: table3 short -->\n<!-- end study -->")


def test_a_line_of_a_study_has_its_main_comparison_and_counts_rows_and_seeds(tmp_path):
    study, runs = get_study("table3"), tmp_path / "runs"
    make_up_runs(study, runs, seeds=[0, 1], scale="paper", skip=lambda spec, seed: spec.recipe == "pacs.erm_bn")
    make_up_runs(study, runs, seeds=[0, 1], scale="short", skip=lambda spec, seed: seed == 1 and "rsc" in spec.recipe)
    archive(study, runs=runs, kept=tmp_path / "short", scale="short", seeds=[0, 1])
    (line,) = render_glance(tmp_path / "short", ["table3"]).splitlines()[4:]
    assert line.endswith("| all 7, n 1 to 2, short scale |")
    archive(study, runs=runs, kept=tmp_path / "results", seeds=[0, 1])
    found = collect(study, runs=tmp_path / "none", kept=tmp_path / "results")
    (line,) = render_glance(tmp_path / "results", ["table3"]).splitlines()[4:]
    cells = line.split(" | ")
    assert cells[0] == "| [Table 3: PACS, single source](table3.md)"
    assert cells[1].startswith(f"RSC + ASR-Norm {found.cells['RSC + ASR-Norm', 'Avg.'].mean:.1f} ± ")
    assert cells[1].endswith(" (68.1)")
    assert cells[2].startswith(f"RSC {found.cells['RSC', 'Avg.'].mean:.1f} ± ")
    assert cells[4] == "6 of 7, n 2 |"


def test_the_line_of_a_study_takes_the_first_comparison_that_is_measured(tmp_path):
    study, runs = get_study("table3"), tmp_path / "runs"
    make_up_runs(study, runs, seeds=[0], scale="paper", skip=lambda spec, seed: spec.recipe == "pacs.rsc_bn")
    archive(study, runs=runs, kept=tmp_path / "results", seeds=[0])
    (line,) = render_glance(tmp_path / "results", ["table3"]).splitlines()[4:]
    assert [cell.split(" + ")[0].split()[0] for cell in line.split(" | ")[1:3]] == ["ERM", "ERM"]


def test_a_study_that_runs_nothing_is_left_out_and_tables_figures_and_ours_stand_apart(tmp_path):
    text = render_glance(tmp_path, ["fig-samples", "table6", "fig-levels", "pacs-best"])
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "### Tables of the paper",
        "### Figures of the paper",
        "### Our studies",
    ]
    assert "fig-samples" not in text


def test_a_study_says_first_what_its_first_comparison_and_instance_norm_show(tmp_path):
    study, runs, kept = get_study("table3"), tmp_path / "runs", tmp_path / "results"
    make_up_runs(study, runs, scale="paper", seeds=range(3))
    archive(study, runs=runs, kept=kept, seeds=range(3))
    first, second = render_study("table3", kept).splitlines()[0].split(". **")
    found = collect(study, runs=tmp_path / "none", kept=kept)
    gap = found.cells["RSC + ASR-Norm", "Avg."].mean - found.cells["RSC", "Avg."].mean
    assert first.startswith(f"**RSC + ASR-Norm: {found.cells['RSC + ASR-Norm', 'Avg.'].mean:.1f} ± ")
    assert f"{abs(gap):.1f} {'above' if gap > 0 else 'below'} RSC (p " in first
    assert first.endswith("n = 3 each); in the paper 68.1, 6.3 above")
    assert second.startswith("ERM + ASR-Norm: ")
    assert " ERM + IN (p " in second


def test_a_page_of_the_docs_leads_to_the_recipes_and_to_the_files_of_the_results(tmp_path):
    runs, kept, page = tmp_path / "runs", tmp_path / "results", tmp_path / "docs" / "studies" / "table5.md"
    for name in ("cifar-erm", "table5"):
        make_up_runs(get_study(name), runs, scale="paper", seeds=[0])
        archive(get_study(name), runs=runs, kept=kept, seeds=[0])
    links = "Settings: [recipes](../recipes.md). Results: [`table5.jsonl`](../../results/table5.jsonl)."
    found = collect(get_study("table5"), runs=tmp_path / "none", kept=kept)
    assert link_sources(found, kept, page) == links
    assert links in render_study("table5", kept, page=page)
    assert "Settings" not in render_study("table5", kept)
    both = link_sources(collect(get_study("table10"), runs=tmp_path / "none", kept=kept), kept, page)
    assert "[`cifar-erm.jsonl`]" in both
    assert "[`table5.jsonl`]" in both


def test_without_results_there_is_nothing_to_link_to(tmp_path):
    found = collect(get_study("table5"), runs=tmp_path / "none", kept=tmp_path)
    assert link_sources(found, tmp_path, tmp_path / "page.md") == ""


def test_averages_are_open_until_their_runs_are_kept_and_show_the_paper_at_its_scale_only(tmp_path):
    kept = tmp_path / "results"
    rows = [line.split(" | ") for line in render_averages(kept).splitlines()[2:]]
    assert {cell.strip(" |").partition("<br>")[0] for _, *cells in rows for cell in cells} == {"*open*"}
    make_up_runs(get_study("table5"), tmp_path / "runs", scale="paper", seeds=[0, 1])
    archive(get_study("table5"), runs=tmp_path / "runs", kept=kept, seeds=[0, 1])
    found = collect(get_study("table5"), runs=tmp_path / "none", kept=kept).cells["ADA + IN", "Avg."]
    text = render_averages(kept, tmp_path / "README.md")
    (line,) = (line for line in text.splitlines() if line.startswith("| [CIFAR-10-C, ADA](docs/studies/table5.md) "))
    assert line.split(" | ")[2].startswith(f"{found.mean:.1f} \N{PLUS-MINUS SIGN} ")
    assert line.split(" | ")[2].endswith(", n 2<br>(83.5)")
    (short,) = (line for line in text.splitlines() if "CIFAR-10-C, ERM" in line and "a fifth" in line)
    assert "(" not in short.partition("steps")[2]
