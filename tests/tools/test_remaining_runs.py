"""The list of runs that tables lack: what it counts, and what it takes a run to last."""

from pathlib import Path

import pytest

from asrnorm.recipes import recipe
from asrnorm.studies import archive, get_study
from helpers.made_up_run import make_up_runs
from tools.remaining_runs import ORDER, Entry, Kept, Plans, estimate, render_remaining


def cells(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][2:]


def test_a_run_counts_in_the_first_entry_that_has_it(tmp_path):
    order = [Entry("table6", "short", 1), Entry("table5", "short", 1), Entry("table7", "short", 1)]
    assert [(row[0], row[2], row[3]) for row in cells(render_remaining(tmp_path, order, []))] == [
        ("1", "3", ""),
        ("2", "3", "3"),  # the rows that table 6 lacks, and BN-Test
    ]


def test_kept_runs_leave_the_list_and_tell_what_others_take(tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "results"
    make_up_runs(get_study("table8"), runs, scale="paper", seeds=range(1))
    archive(get_study("table8"), runs=runs, kept=kept, seeds=range(1))
    order = [Entry("table8", "paper", 1), Entry("table8", "paper", 2)]
    text = render_remaining(kept, order, ["table8"])
    (row,) = cells(text)
    assert text.endswith("by study: `table8` (72).")  # of the other three seeds
    assert row[:4] == ["1", "`asrnorm reproduce table8 --seeds 2`", "24", ""]
    assert float(row[4].replace(",", "")) > 0
    assert float(row[5]) >= 0


@pytest.mark.parametrize(
    ("name", "overrides", "seconds"),
    [
        ("cifar10c.ada_bn", {}, 100.0),  # the same run at another seed
        ("cifar10c.ada_bn", {"steps": 39100}, 50.0),  # in proportion to its steps
        ("cifar10c.erm_in", {}, 20.0),  # the method counts more than the norm; the median of two
        ("cifar10c.best", {"batch_size": 128, "steps": 78200}, 3 * 30.0),  # three views of an image
        ("cifar10c.erm_bn", {"model": "wrn_16_4"}, 10.0),  # as another network
        ("pacs.erm_bn", {}, None),
    ],
)
def test_a_run_takes_what_the_most_similar_kept_ones_took(name, overrides, seconds):
    times = {"ada_bn": 100.0, "erm_bn": 10.0, "erm_asr": 30.0}
    kept = [Kept(recipe(f"cifar10c.{one}"), took) for one, took in times.items()]
    guess = estimate(recipe(name, seed=3, **overrides), kept)
    assert guess == (None if seconds is None else pytest.approx(seconds))


def test_every_entry_names_rows_that_are_run():
    plans = Plans(Path("nowhere"))
    assert all(plans.todo(entry) for entry in ORDER)
