import re

import pytest

from asrnorm.reporting.figures import base
from asrnorm.studies import archive, get_study
from helpers.made_up_run import make_up_runs
from tools import result_figures
from tools.result_tables import render_study, rewrite

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def keep_study(name, root, seeds=(0, 1), scale="paper"):
    """Keep made-up results of a study and return their folder."""
    study, runs, kept = get_study(name), root / "runs", root / "results"
    make_up_runs(study, runs, scale=scale, seeds=seeds)
    archive(study, runs=runs, kept=kept, seeds=seeds, scale=scale)
    return kept


def fingerprint_of(name, kept):
    return result_figures.fingerprint(result_figures.collect_kept(get_study(name), kept))


def test_a_picture_says_what_it_was_drawn_from_and_reads_on_any_ground(tmp_path):
    kept = keep_study("table8", tmp_path)
    (path,) = result_figures.draw("table8", kept, tmp_path / "out")
    assert path.name == "table8--complexity.svg"
    text = path.read_text()
    assert text.startswith(f"<!-- drawn from {fingerprint_of('table8', kept)} -->\n<svg ")
    assert base.INK not in text
    assert "#808080" in text
    assert result_figures.draw("table8", kept, tmp_path / "again")[0].read_text() == text


def test_the_fingerprint_follows_results_and_details_and_nothing_else(tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path)
    seen = [fingerprint_of("fig-lambda-cifar", kept)]
    (kept / "other.jsonl").write_text("")
    assert fingerprint_of("fig-lambda-cifar", kept) == seen[0]
    file = kept / "fig-lambda-cifar.jsonl"
    file.write_text(file.read_text().replace('"schema": 1', '"schema": 1, "origin": {"device": "cpu"}'))
    assert fingerprint_of("fig-lambda-cifar", kept) == seen[0]
    curves = next(kept.glob("details/*/curves.csv"))
    curves.write_text(curves.read_text().replace("0.", "1.", 1))
    seen.append(fingerprint_of("fig-lambda-cifar", kept))
    lines = (kept / "fig-lambda-cifar.jsonl").read_text().splitlines(keepends=True)
    (kept / "fig-lambda-cifar.jsonl").write_text("".join(lines[1:]))
    seen.append(fingerprint_of("fig-lambda-cifar", kept))
    assert len(set(seen)) == 3


def test_curves_are_drawn_of_the_seeds_that_they_are_kept_of(tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path)
    for path in kept.glob("details/*--s0--*/curves.csv"):
        path.unlink()
    found = result_figures.collect_kept(get_study("fig-lambda-cifar"), kept)  # of one seed, number 0
    drawn = result_figures.try_figure("lambdas", found)
    assert [axes.get_ylabel().splitlines()[-1] for axes in drawn.axes[::2]] == ["seed 1", "seed 1"]
    table = result_figures.collect_kept(get_study("fig-levels"), kept)  # of numbers alone: the table's seeds
    assert {seed for cell in table.cells.values() for seed in cell.seeds} <= set(range(5))


def test_where_nothing_is_left_to_draw_the_old_picture_goes(tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path, seeds=(0,))
    (path,) = result_figures.draw("fig-lambda-cifar", kept, tmp_path)
    for curves in kept.glob("details/*/curves.csv"):
        curves.unlink()
    assert result_figures.draw("fig-lambda-cifar", kept, tmp_path) == []
    assert not path.exists()


def test_the_papers_numbers_alone_are_not_drawn(tmp_path):
    assert result_figures.draw("fig-levels", tmp_path / "results", tmp_path) == []


def test_all_pictures_of_a_tree_are_drawn_and_no_other_is_left(tmp_path):
    keep_study("table8", tmp_path)
    stray = tmp_path / result_figures.FOLDER / "gone--levels.svg"
    stray.parent.mkdir(parents=True)
    stray.write_text("")
    assert result_figures.main(tmp_path) == 1
    assert [path.name for path in stray.parent.iterdir()] == ["table8--complexity.svg"]


def test_pages_show_the_pictures_that_are_there_wherever_they_lie(tmp_path):
    kept = keep_study("table8", tmp_path)
    deep, top = tmp_path / "docs" / "studies" / "table8.md", tmp_path / "README.md"
    assert "![" not in render_study("table8", kept, page=deep)
    result_figures.main(tmp_path)
    text = render_study("table8", kept, page=deep)
    line = "![PACS, complexity against accuracy](../assets/studies/table8--complexity.svg)"
    assert text.index("Ours: mean") < text.index(line)
    assert "*Accuracy by parameters: ours filled" in text
    block = "<!-- study: table8 -->\n<!-- end study -->"
    assert "](docs/assets/studies/table8--complexity.svg)" in rewrite(block, kept, top)
    assert "![" not in rewrite(block, kept)
    assert "![" not in render_study("table8", kept, "short", page=deep)


def test_every_scale_has_a_picture_of_its_own_results(tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path, seeds=(0,), scale="short")
    page = tmp_path / "docs" / "studies" / "fig-lambda-cifar.md"
    result_figures.main(tmp_path)
    assert "![" not in render_study("fig-lambda-cifar", kept, page=page)
    assert "fig-lambda-cifar--lambdas--short.svg)" in render_study("fig-lambda-cifar", kept, "short", page=page)
    before = (tmp_path / result_figures.FOLDER / "fig-lambda-cifar--lambdas--short.svg").read_text()
    keep_study("fig-lambda-cifar", tmp_path, seeds=(0, 1))
    result_figures.main(tmp_path)
    assert (tmp_path / result_figures.FOLDER / "fig-lambda-cifar--lambdas--short.svg").read_text() == before
    shown = [render_study("fig-lambda-cifar", kept, scale, page=page) for scale in ("paper", "short")]
    assert ["--lambdas.svg" in text for text in shown] == [True, False]
    # The short one is of the table's one seed, the other is not.
    assert ["The figure shows the seeds named in it" in text for text in shown] == [True, False]


def test_pictures_stand_before_the_tests(tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path, seeds=(0,))
    result_figures.main(tmp_path)
    text = render_study("fig-lambda-cifar", kept, page=tmp_path / "docs" / "studies" / "a.md")
    assert text.index("![Lambdas over training, CIFAR-10]") < text.index("| row | against |")


@pytest.mark.parametrize(("seeds", "said"), [((0,), False), ((0, 1), True)])
def test_where_a_picture_is_of_other_seeds_than_the_table_it_is_said(seeds, said, tmp_path):
    kept = keep_study("fig-lambda-cifar", tmp_path, seeds=seeds)
    result_figures.main(tmp_path)
    text = render_study("fig-lambda-cifar", kept, page=tmp_path / "docs" / "studies" / "a.md")
    assert ("The figure shows the seeds named in it; the table shows seed 0.*" in text) is said


def test_dots_in_hundreds_are_pixels_in_the_colors_of_images():
    with base.canvas(3, 2) as (drawing, axes):
        few, many = (axes.scatter(range(n), range(n), c=base.PALETTE[0]) for n in (10, 500))
        text = base.to_svg(result_figures.rasterize_dots(drawing))
    assert many.get_rasterized()
    assert not few.get_rasterized()
    assert text.count("<image") == 1
    assert many.get_facecolor()[0] != pytest.approx(few.get_facecolor()[0])


def test_in_an_image_letters_read_on_white_and_on_black():
    with base.canvas(3, 2) as (drawing, axes):
        axes.plot([0, 1, 3], [0, 1.23456, 2], color=base.PALETTE[0])
        svg = result_figures.for_image(base.to_svg(drawing))
    assert not any(color in svg for color in result_figures.ANY_BACKGROUND)
    assert not re.search(r' d="[^"]*\.\d{3}', svg)
    assert re.search(r"scale\(0\.\d{3}", svg)  # of letters, left as it was
