import pytest

from asrnorm.reporting.pipe_table import escape, pipe_head, pipe_line, pipe_table


def test_a_name_stays_in_its_cell_whatever_it_holds():
    line = pipe_line([escape("ni\nght | *a*\r\n<b>"), "1"])
    assert line == r"| ni ght \| \*a\* &lt;b> | 1 |"


def test_columns_of_numbers_are_set_to_the_right():
    assert pipe_head(["row", "run", "n"], words=2).splitlines()[1] == "| --- | --- | ---: |"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a\\|b", "a\\\\\\|b"),
        ("&lt;i&gt;", "&amp;lt;i&amp;gt;"),
        ("`code`", "\\`code\\`"),
        ("x <b>", "x &lt;b>"),
        ("é\n1", "é 1"),
    ],
)
def test_names_are_read_as_they_are(name, written):
    assert escape(name) == written


@pytest.mark.parametrize(("columns", "rows", "turned"), [(9, 2, False), (10, 2, True), (10, 9, True), (10, 10, False)])
def test_a_table_that_is_wide_and_not_long_is_turned(columns, rows, turned):
    grid = [[f"{row}.{column}" for column in range(columns)] for row in range(rows)]
    lines = [line.strip("| ").split(" | ") for line in pipe_table(grid, words=2).splitlines()]
    assert lines[1] == (["---"] + ["---:"] * (rows - 1) if turned else ["---"] * 2 + ["---:"] * (columns - 2))
    found = [lines[0], *lines[2:]]
    assert found == ([list(column) for column in zip(*grid, strict=True)] if turned else grid)
