import base64
import hashlib
import re
import subprocess
import sys

import pytest
from jinja2 import UndefinedError

from asrnorm.reporting import page
from asrnorm.reporting.page import render_page


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


def test_every_value_of_a_template_is_escaped():
    text = render_page("base.html", title='"><script>x</script>', footer="<b>")
    assert "<title>&#34;&gt;&lt;script&gt;x&lt;/script&gt;</title>" in text
    assert "<footer>&lt;b&gt;</footer>" in text
    assert "script-src 'none'" in text


def test_a_value_that_is_forgotten_is_an_error():
    with pytest.raises(UndefinedError):
        render_page("base.html", title="no footer")


def test_a_script_runs_by_its_hash_alone():
    text = render_page("base.html", title="", footer="", scripts=["sorting.js"])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    script = re.search("<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.endswith(f"; script-src 'sha256-{digest}'")
    assert "unsafe-inline'; script" not in policy


def test_importing_the_package_does_not_load_the_template_engine():
    # torch loads it on its own account in places, so that only what torch has not loaded counts.
    script = "import sys, torch; before = set(sys.modules); import asrnorm, asrnorm.cli.main, asrnorm.reporting.study\n"
    script += "assert 'jinja2' not in set(sys.modules) - before"
    subprocess.run([sys.executable, "-c", script], check=True)
