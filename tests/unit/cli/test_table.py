"""Scores on the screen: every number from what was scored, names as they are."""

import pytest

from asrnorm.cli.table import print_attacks, print_domains, print_scores
from asrnorm.core.results import DomainScore
from asrnorm.evaluation import SuiteScore


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


def domain(name, accuracy, samples=1000):
    return DomainScore(
        name=name, accuracy=accuracy, brier=0.125, brier_sum=1.25, nll=0.5, ece=0.0625, num_samples=samples
    )


def lines(capsys):
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_domains_have_a_row_each_and_an_average_where_there_are_two(capsys):
    print_domains([domain("north", 0.5)])
    assert lines(capsys)[1:] == [["north", "50.00", "0.1250", "1.2500", "0.5000", "0.0625", "1,000"]]
    print_domains([domain("north", 0.5), domain("south", 0.25, 9)])
    *rows, average = lines(capsys)[1:]
    assert [row[0] for row in rows] == ["north", "south"]
    assert " ".join(average) == "average accuracy on 2 domains: 37.50 %"


def test_a_name_in_brackets_is_a_name(capsys):
    print_domains([domain("[red]site[/red]", 1.0)])
    assert lines(capsys)[1][0] == "[red]site[/red]"


def test_corruptions_are_averaged_by_severity_and_by_kind(capsys):
    values = {"fog/1": 0.9, "fog/2": 0.5, "snow/1": 0.7, "snow/2": 0.3}
    domains = tuple(domain(name, value) for name, value in values.items())
    print_scores(SuiteScore(source=domain("clean", 0.95), domains=domains, missing=("frost",)))
    rows = lines(capsys)
    assert ["severity", "1", "80.00"] in [row[:3] for row in rows]
    assert ["severity", "2", "40.00"] in [row[:3] for row in rows]
    assert ["fog", "90.0", "50.0", "70.0"] in rows
    assert ["snow", "70.0", "30.0", "50.0"] in rows
    assert "average accuracy on 4 unseen domains: 60.00 %" in [" ".join(row) for row in rows]
    assert any(row[:2] == ["missing:", "frost;"] for row in rows)


def test_a_missing_corruption_is_named_once(capsys):
    missing = tuple(f"{name}/{severity}" for name in ("fog", "frost") for severity in range(1, 6))
    print_scores(SuiteScore(source=domain("cifar10", 0.9), domains=(domain("snow/1", 0.5),), missing=missing))
    assert "missing: fog, frost; asrnorm data list" in capsys.readouterr().out


def test_attacks_stand_below_the_clean_accuracy(capsys):
    print_attacks({"pgd 8/255": 0.125}, domain("mnist", 0.99))
    assert lines(capsys)[1:] == [["none", "99.00"], ["pgd", "8/255", "12.50"]]


def test_a_corruption_that_lacks_a_severity_is_averaged_over_those_it_has(capsys):
    domains = tuple(domain(name, value) for name, value in {"fog/1": 0.9, "fog/2": 0.5, "snow/1": 0.7}.items())
    print_scores(SuiteScore(source=domain("clean", 0.9), domains=domains, missing=()))
    assert ["snow", "70.0", "70.0"] in lines(capsys)


def test_a_target_with_the_name_of_the_source_has_its_own_row(capsys):
    print_scores(SuiteScore(source=domain("day", 0.5), domains=(domain("day", 0.25),), missing=()))
    assert [row[:2] for row in lines(capsys)[1:3]] == [["day", "50.00"], ["day", "25.00"]]
