import itertools
import json

import pytest

from asrnorm.bench import harness
from asrnorm.bench.harness import Case, Row, compare, metadata
from asrnorm.core.errors import InputError


class Clock:
    """Time that passes only where a case says so: a busy machine must not decide what a test finds."""

    def __init__(self):
        self.now = 0.0

    def work(self, *seconds):
        """Return a function that takes these seconds, one after the other and over again."""
        turns = itertools.cycle(seconds)

        def run():
            self.now += next(turns)

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock.now)
    return clock


def test_a_case_that_takes_three_times_as_long_has_a_third_of_the_rate(clock):
    cases = {"slow": Case(clock.work(0.3), 60), "fast": Case(clock.work(0.1), 60)}
    slow, fast = compare("work", cases, baseline="slow", repeats=5)
    assert (slow.ratio, fast.ratio) == (1.0, pytest.approx(3.0))
    assert (slow.per_second, fast.per_second) == (pytest.approx(200), pytest.approx(600))
    assert (fast.baseline, fast.repeats) == ("slow", 5)


def test_the_median_and_the_fifths_are_taken_over_the_repeats(clock):
    # The first value is spent on the warm-up.
    case = Case(clock.work(9.0, 1.0, 2.0, 3.0, 4.0, 10.0), 12)
    (row,) = compare("work", {"a": case}, baseline="a", repeats=5, warmup=1)
    assert row.per_second == pytest.approx(12 / 3)
    assert row.p80 == pytest.approx(12 / 1.8)
    assert row.p20 == pytest.approx(12 / 5.2)


def test_cases_take_turns():
    calls = []
    cases = {name: Case(lambda name=name: calls.append(name), 1) for name in "ab"}
    compare("turns", cases, baseline="a", repeats=3, warmup=2, least_s=0.0)
    assert "".join(calls) == "aabb" + "ab" * 3


def test_short_cases_are_called_several_times_a_repeat(clock):
    nap = clock.work(0.002)
    calls = []
    case = Case(lambda: (calls.append(1), nap()), 1)
    (row,) = compare("nap", {"nap": case}, baseline="nap", repeats=2, warmup=1, least_s=0.02)
    assert len(calls) == 1 + 2 * 10
    assert row.per_second == pytest.approx(500)


def test_a_baseline_that_is_not_measured_is_refused():
    with pytest.raises(InputError, match="the baseline 'x' is not among the cases a"):
        compare("work", {"a": Case(lambda: None, 1)}, baseline="x")


def test_metadata_says_what_was_measured_where():
    machine = metadata()
    assert {"python", "torch", "cpu", "cores", "threads", "gpu", "commit", "asrnorm", "load"} <= set(machine)
    assert machine["cpu"]
    json.dumps(machine)


def test_results_are_described_with_their_machine():
    row = Row("work", "path", 10.0, 9.0, 11.0, 2.0, "base", 3)
    content = json.loads(harness.describe("data", [row]))
    assert (content["schema"], content["suite"]) == (1, "data")
    changing = {key: content["machine"][key] for key in ("load", "time")}
    assert content["machine"] == metadata() | changing
    assert [row["ratio"] for row in content["rows"]] == [2.0]


def test_the_fastest_candidate_becomes_the_baseline():
    rows = [Row("step", name, rate, rate, rate, 1.0, "a", 3) for name, rate in (("a", 1.0), ("b", 2.0), ("c", 4.0))]
    rebased = harness.rebase(rows, ["a", "b"])
    assert [(row.baseline, row.ratio) for row in rebased] == [("b", 0.5), ("b", 1.0), ("b", 2.0)]
