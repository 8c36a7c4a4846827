import pytest

from asrnorm.report.pipe_table import escape, pipe_head, pipe_line


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
