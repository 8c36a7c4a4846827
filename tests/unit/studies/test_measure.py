"""Numbers by domain: what a measure looks at, and averages where a domain is missing."""

import pytest

from asrnorm.studies import Measure, RunSpec, get_study
from asrnorm.studies.measure import find_missing, read_measure, restrict_printed
from helpers.study_case import make_result

RESULT = make_result(
    RunSpec(recipe="cifar10c.erm_bn"), 0, {"fog/1": 0.9, "fog/5": 0.5, "snow/5": 0.7}, missing=["frost/5"]
)


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        (Measure(quantity="accuracy"), 70),
        (Measure(quantity="accuracy", unit="plain"), 0.7),
        (Measure(quantity="accuracy", domains=("*/5",)), 60),
        (Measure(quantity="accuracy", domains=("fog/*", "snow/*")), 70),
        (Measure(quantity="accuracy", domains=("frost/*",)), None),
        (Measure(quantity="accuracy", on_source=True), 99),
        (Measure(quantity="brier", unit="plain"), 0.05),
        (Measure(quantity="adversarial", attack="ada25-1"), 30),
        (Measure(quantity="adversarial", attack="unheard"), None),
        (Measure(quantity="parameters", unit="millions"), 1),
        (Measure(quantity="parameters", baseline=800_000), 25),
    ],
)
def test_what_a_measure_reads(measure, value):
    assert read_measure(measure, RESULT) == (None if value is None else pytest.approx(value))


def test_domains_that_other_rows_lack_are_left_out_of_averages_alone():
    everything = Measure(quantity="accuracy")
    assert read_measure(everything, RESULT, frozenset({"fog/1"})) == pytest.approx(60)
    one = Measure(quantity="accuracy", domains=("fog/1",))
    assert read_measure(one, RESULT, frozenset({"fog/1"})) == pytest.approx(90)


def test_missing_domains_matter_to_the_measures_that_look_at_them():
    assert find_missing(Measure(quantity="accuracy", domains=("*/5",)), RESULT) == {"frost/5"}
    assert find_missing(Measure(quantity="accuracy", domains=("*/1",)), RESULT) == set()
    assert find_missing(Measure(quantity="accuracy", on_source=True), RESULT) == set()
    assert find_missing(Measure(quantity="parameters"), RESULT) == set()


def test_a_printed_average_over_fewer_domains_keeps_its_source_and_says_what_it_is():
    row = next(row for row in get_study("table1").rows if row.label == "ADA")
    gone = {column: frozenset({"syn"}) if column in ("SYN", "Avg.") else frozenset() for column in row.cells}
    printed = restrict_printed(row, "Avg.", gone)
    assert printed.value == pytest.approx((35.5 + 60.4 + 77.3) / 3, abs=0.005)
    assert printed.copied_from == "M-ADA"
    assert "on the available domains" in printed.note
    assert restrict_printed(row, "SVHN", gone) is row.cells["SVHN"].printed
    assert restrict_printed(row, "SYN", gone).value == 45.3
