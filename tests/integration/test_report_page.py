"""The page of a study in a real browser: sorting, links, narrow and dark, nothing asked of anyone."""

import re

import pytest

from asrnorm.reporting.folder import collect_folder
from asrnorm.reporting.page import render_page
from asrnorm.reporting.study import write_report
from asrnorm.studies import collect, get_study
from helpers.browser import CHROMIUM, open_browser
from helpers.hostile_run import make_hostile_runs
from helpers.made_up_run import make_up_runs
from helpers.small_study import collect_small, small_study

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    study = get_study("fig-levels")
    make_up_runs(study, folder / "runs")
    levels = collect(study, runs=folder / "runs", scale="smoke", seeds=[0, 1, 2])
    return {
        "small": write_report(collect_small(folder / "small-runs"), folder / "small")[-1],
        "levels": write_report(levels, folder / "levels")[-1],
    }


@pytest.fixture(scope="module")
def browser():
    with open_browser() as running:
        yield running


@pytest.fixture
def tab(browser):
    return browser.new_page()


def column(tab, index):
    """The first column's words in the order of the rows that are seen, and the sorting of a column."""
    rows = "[...document.querySelector('table.cells').tBodies[0].rows].filter(row => !row.hidden)"
    order = tab.run(f"{rows}.map(row => row.cells[0].dataset.sort ?? '')")
    return order, tab.run(f"document.querySelectorAll('table.cells thead th')[{index}].getAttribute('aria-sort')")


def click(tab, index):
    tab.run(f"document.querySelectorAll('table.cells thead th button')[{index}].click()")


def test_a_click_sorts_gaps_stay_last_and_the_third_click_restores(tab, pages):
    tab.open(pages["small"])
    before, state = column(tab, 1)
    assert state == "none"
    click(tab, 1)
    up, state = column(tab, 1)
    assert state == "ascending"
    click(tab, 1)
    down, state = column(tab, 1)
    assert state == "descending"
    measured = 4
    assert up[:measured] == down[:measured][::-1]
    assert set(up[measured:]) == set(down[measured:]) == {"CCSA", "ADA"}
    assert up[0] == "ERM"
    click(tab, 1)
    assert column(tab, 1) == (before, "none")
    assert tab.problems == []


def test_only_one_column_says_that_it_is_sorted(tab, pages):
    tab.open(pages["small"])
    click(tab, 1)
    click(tab, 2)
    states = tab.run("[...document.querySelectorAll('table.cells thead th')].map(th => th.getAttribute('aria-sort'))")
    assert states == ["none", "none", "ascending", "none"]


def test_the_keyboard_sorts_too(tab, pages):
    tab.open(pages["small"])
    tab.run("document.querySelector('table.cells thead th button').focus()")
    tab.press("Enter")
    order, state = column(tab, 0)
    assert state == "ascending"
    assert order == sorted(order)


def test_every_link_leads_somewhere(tab, pages):
    tab.open(pages["levels"])
    links = tab.run("[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))")
    assert len(links) > 40
    lost = tab.run(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(a.hash.slice(1))).length"
    )
    assert lost == 0
    files = {link for link in links if not link.startswith("#")}
    assert files == {f"figures/levels.{form}" for form in ("svg", "pdf", "png")}
    assert all((pages["levels"].parent / file).is_file() for file in files)


def test_a_cell_leads_to_its_runs(tab, pages):
    tab.open(pages["small"])
    target = tab.run("document.querySelector('table.cells a.ours').hash")
    tab.run("document.querySelector('table.cells a.ours').click()")
    tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert tab.run("location.hash") == target
    top = tab.run("document.querySelector(':target').getBoundingClientRect().top")
    assert 0 <= top < 200
    assert tab.run("document.querySelector(':target details pre').textContent.includes('recipe: digits.erm_none')")
    assert not tab.run("document.querySelector(':target details').open")
    assert tab.run("document.querySelectorAll(':target svg.spark polyline').length") == 6  # loss, accuracy; 3 seeds


@pytest.mark.parametrize("name", ["small", "levels"])
def test_nothing_overflows_at_phone_width_and_tables_scroll_in_their_box(name, tab, pages):
    tab.open(pages[name], **PHONE)
    assert tab.run("document.documentElement.scrollWidth") <= PHONE["width"]
    inside = tab.run(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert inside == []
    assert tab.run("(box => box.scrollWidth > box.clientWidth)(document.querySelector('table.cells').parentElement)")


def test_on_a_phone_the_average_of_own_runs_is_seen_and_the_list_of_cells_is_folded(tab, tmp_path):
    make_up_runs(small_study(), tmp_path / "runs", scale="paper")
    tab.open(write_report(collect_folder(tmp_path / "runs"), tmp_path / "out")[-1], width=375, height=812)
    head = "document.querySelector('table.cells thead th:nth-child(2)')"
    assert tab.run(f"{head}.textContent.trim()") == "unseen, average"
    assert tab.run(f"{head}.getBoundingClientRect().right") < 375
    assert tab.run("document.querySelector('table.long').closest('details').open") is False


def luminance(color):
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("selector", ["body", ".note", "td .sub", "a.ours", "figure.drawn"])
def test_words_are_legible_in_light_and_dark(selector, dark, tab, pages):
    tab.open(pages["levels"], dark=dark)
    ink = luminance(tab.run(f"getComputedStyle(document.querySelector('{selector}')).color"))
    paper = luminance(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert (paper < 0.05) == dark
    lighter, darker = max(ink, paper), min(ink, paper)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize("name", ["small", "levels"])
def test_the_page_is_silent_and_asks_nothing_of_anyone(name, tab, pages):
    tab.open(pages[name])
    for index in range(tab.run("document.querySelectorAll('thead th button').length")):
        tab.run(f"document.querySelectorAll('thead th button')[{index}].click()")
    assert tab.problems == []
    assert all(address.startswith(("file:", "data:")) for address in tab.requests)


def test_texts_of_runs_are_shown_and_never_run(tab, tmp_path):
    runs = make_hostile_runs(tmp_path / "runs")
    tab.open(write_report(collect_folder(runs), tmp_path / "out")[-1])
    for index in range(tab.run("document.querySelectorAll('thead th button').length")):
        tab.run(f"document.querySelectorAll('thead th button')[{index}].click()")
    assert tab.run("document.title") == "Runs in runs"
    assert "<script>document.title='OWNED'</script>" in tab.run("document.querySelector('table.cells').textContent")
    assert tab.run("document.querySelectorAll('img, body script:not(:last-child)').length") == 0
    assert tab.problems == []
    assert all(address.startswith(("file:", "data:")) for address in tab.requests)


def test_markup_that_was_not_escaped_still_runs_no_script(tab, tmp_path):
    attack = "<script>document.title = 'OWNED'</script><img src=data:, onerror=\"document.title = 'OWNED'\">"
    link = "<a id=link href=\"javascript:document.title = 'OWNED'\">x</a>"
    table = "<table class=sortable><thead><tr><th>a</th></tr></thead><tbody></tbody></table>"
    text = render_page("base.html", title="page", footer="", scripts=["sorting.js"])
    (tmp_path / "page.html").write_text(text.replace("<footer>", f"{attack}{link}{table}<footer>"))
    tab.open(tmp_path / "page.html")
    tab.run("document.getElementById('link').click()")
    tab.run("new Promise(done => setTimeout(done, 100))")
    assert tab.run("document.title") == "page"
    assert tab.run("document.querySelectorAll('thead th button').length") == 1
    assert tab.run("document.getElementById('link') !== null")
