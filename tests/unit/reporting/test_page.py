import base64
import hashlib
import re
import subprocess
import sys

import pytest
from jinja2 import UndefinedError

from asrnorm.reporting import page
from asrnorm.reporting.page import render_page
from asrnorm.reporting.text import DASH
from helpers.html_table import read_tables

MACROS = '{% from "macros.html" import percent_table, picture %}'


def render_source(source, **values):
    return page._environment().from_string(MACROS + source).render(values)


def test_a_page_asks_for_nothing():
    text = render_page("base.html", title="T & T", footer="made <here>")
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text
    assert all(target.startswith("data:") for target in re.findall(r'(?:src|href)="([^"]*)', text))
    assert "<script" not in text


def test_a_picture_is_inside_the_page_with_its_description():
    text = render_source('{{ picture(png, "a \\"b\\"") }}', png=b"png")
    assert '<img src="data:image/png;base64,cG5n" alt="a &#34;b&#34;">' in text


def percents(columns, rows, best=()):
    text = render_source("{{ percent_table(columns, rows, best) }}", columns=columns, rows=rows, best=best)
    (table,) = read_tables(text)
    return [[(cell.text, cell.attributes.get("class")) for cell in line[1:]] for line in table.lines[1:]]


def test_the_row_to_mark_in_each_column_is_marked_and_the_absent_is_a_dash():
    rows = [("x", [0.5, None]), ("y", [0.25, 0.125])]
    lines = [[("50.0", "best"), (DASH, None)], [("25.0", None), ("12.5", None)]]
    assert percents(["a", "b"], rows, best=[0, None]) == lines
    assert percents(["a", "b"], rows)[0][0] == ("50.0", None)


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
