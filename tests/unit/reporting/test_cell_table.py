import re
from dataclasses import replace

from asrnorm.reporting.cell_table import cell_table, comparison_table, long_table
from asrnorm.reporting.entry import lay_out


def nowhere(entry):
    return []


def test_a_cell_with_several_runs_links_to_each(small):
    table = cell_table(lay_out(small), lambda entry: ["a", "b"])
    assert 'runs <a href="#a">1</a> <a href="#b">2</a>' in table
    assert 'href="#a"' not in cell_table(lay_out(small), nowhere)


def test_cells_sort_by_their_numbers_and_gaps_by_nothing(small):
    table = long_table(lay_out(small), nowhere)
    line = next(line for line in table.splitlines() if ">ERM</th><td>SVHN" in line)
    keys = re.findall(r'data-sort="([^"]*)"', line)
    measured = small.cells["ERM", "SVHN"]
    assert [float(key) for key in keys[:5]] == [
        measured.mean,
        measured.deviation,
        measured.n,
        27.8,
        measured.mean - 27.8,
    ]
    assert keys[5] == ""
    assert 'class="missing" data-sort=""' in table


def test_columns_that_nothing_is_in_are_left_out(small):
    rows = tuple(replace(row, not_run=None) for row in small.study.rows if row.label != "CCSA")
    bare = replace(small, study=replace(small.study, rows=rows, comparisons=()), printed={}, tests=())
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', long_table(lay_out(bare), nowhere))
    assert heads == ["row", "column", "ours", "deviation", "n"]
    single = {place: replace(cell, deviation=None) for place, cell in small.cells.items()}
    untested = tuple(replace(test, pooled=None) for test in small.tests)
    sheet = lay_out(replace(small, cells=single, tests=untested))
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', long_table(sheet, nowhere))
    assert heads == ["row", "column", "ours", "n", "paper", "difference"]


def test_a_diverged_cell_says_at_which_seeds(small):
    table = cell_table(lay_out(replace(small, diverged={("ADA", "SVHN"): (0, 2)})), nowhere)
    assert 'class="diverged"' in table
    assert "NaN at seeds 0, 2" in table


def test_a_cell_without_data_is_hatched_and_says_so(small):
    cells = {place: cell for place, cell in small.cells.items() if place != ("ERM", "SVHN")}
    sheet = lay_out(replace(small, cells=cells, no_data=frozenset({("ERM", "SVHN")})))
    for table in (cell_table(sheet, nowhere), long_table(sheet, nowhere)):
        assert '<td class="no-data" data-sort=""><span class="state">no data</span>' in table


def test_tests_stand_beside_the_papers_p(small):
    table = comparison_table(small, lay_out(small))
    lines = [line for line in table.splitlines() if line.startswith("<tr><th")]
    assert len(lines) == len(small.tests) == 3
    assert '<td data-sort="0.036">0.036</td></tr>' in lines[0]
    assert "&lt; 0.001</td></tr>" in lines[1]


def test_of_several_p_values_the_highest_is_shown(small):
    first = replace(small.tests[0], pooled=0.01)
    tests = (first, replace(first, against="ERM", pooled=0.25))
    table = cell_table(lay_out(replace(small, tests=tests)), lambda entry: [])
    assert '<span title="0.010 against RSDA; 0.250 against ERM">p &le; 0.250</span>' in table


def test_p_values_stand_under_their_heads(small):
    test = replace(small.tests[0], pooled=0.1, welch=0.2, paired=0.3, holm=0.4)
    table = comparison_table(replace(small, tests=(test,)), lay_out(small))
    line = next(line for line in table.splitlines() if line.startswith("<tr><th"))
    assert re.findall(r">([^<>]*)</td>", line)[-5:] == ["0.100", "0.200", "0.300", "0.400", "0.036"]


def test_comparisons_have_no_columns_that_nothing_is_in(small):
    nothing = {"low": None, "high": None, "pooled": None, "welch": None, "paired": None, "holm": None}
    few = replace(small, tests=tuple(replace(test, **nothing) for test in small.tests))
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', comparison_table(few, lay_out(few)))
    assert heads == ["row", "column", "against", "difference", "n", "paper"]
    pairs = tuple(replace(pair, printed={}) for pair in few.study.comparisons)
    bare = replace(few, study=replace(few.study, comparisons=pairs))
    assert "paper" not in comparison_table(bare, lay_out(bare))
