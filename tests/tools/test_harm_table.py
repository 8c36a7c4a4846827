"""The table of what was tried: sums over the reports, and the page has it."""

from tools.harm_table import PAGE, REPORTS, format_table, read_reports


def test_the_counts_of_all_reports_are_added():
    fuzzed = {"kinds": {"log": 10, "config": 5}, "failed": 1, "slowest_seconds": {"log": 0.2, "config": 0.5}}
    first = {"commands": {"train": 3, "report": 4}, "differing": ["train: a", "report: b"], "mended": ["train: a"]}
    reports = {
        "fuzz": [fuzzed, fuzzed | {"failed": 0}],
        "torture": [first, {"commands": {"train": 2}, "differing": []}],
        "kill_run": [{"total_kills": 7, "differing": []}],
    }
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in format_table(reports).splitlines()[2:]]
    assert [row[1:] for row in rows] == [["30", "1"], ["5", "1, mended"], ["4", "1"], ["7", "0"], ["16", "2"]]
    assert "2 kinds" in rows[0][0]
    assert "0.5 s" in rows[0][0]
    assert "| 1, mended |" in format_table({"fuzz": [fuzzed | {"mended": ["log: a"]}]})


def test_the_page_has_the_table_of_the_kept_reports():
    assert format_table(read_reports(REPORTS)) in PAGE.read_text("utf-8")
