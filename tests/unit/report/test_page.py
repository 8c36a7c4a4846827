import re

from asrnorm.report import page


def test_a_page_is_whole_self_contained_and_escaped(tmp_path):
    parts = [page.heading("a < b"), page.paragraph("x & y"), page.picture(b"png", 'a "picture"')]
    page.write_page(tmp_path / "deep" / "page.html", "T & T", parts, "made <here>")
    text = (tmp_path / "deep" / "page.html").read_text()
    assert "<h2>a &lt; b</h2>" in text
    assert "<title>T &amp; T</title>" in text
    assert "made &lt;here&gt;" in text
    assert all(target.startswith("data:") for target in re.findall(r'(?:src|href)="([^"]*)', text))
    assert "<script" not in text
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["page.html"]


def test_the_best_of_each_column_is_marked_and_the_absent_is_a_dash():
    table = page.percent_table(["a", "b"], [("x", [0.5, None]), ("y", [0.25, 0.125])])
    assert '<td class="best">50.0</td><td>&ndash;</td>' in table
    assert '<td>25.0</td><td class="best">12.5</td>' in table


def test_a_single_row_has_no_best():
    assert "best" not in page.percent_table(["a"], [("x", [0.5])])
