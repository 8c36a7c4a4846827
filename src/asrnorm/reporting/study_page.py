"""The page of a study: the table with the paper's numbers, warnings, figures, tests, and the runs behind every cell."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from asrnorm.reporting import cell_table, page, run_section, sorting
from asrnorm.reporting.best import set_apart
from asrnorm.reporting.comparison import TESTS_NOTE, UNTESTED_NOTE, find_printed, is_tested
from asrnorm.reporting.entry import Entry, Sheet, lay_out
from asrnorm.reporting.figure import for_page
from asrnorm.reporting.provenance import provenance
from asrnorm.studies.collect import Collected

_STYLE = """
.warn { background: var(--warn); border-left: 4px solid var(--warn-line); padding: .6rem 1rem; margin: 1rem 0;
  max-width: 60rem; } .warn ul { margin: .2rem 0; padding-left: 1.2rem; }
nav.contents { font-size: .92rem; } nav.contents a { margin-right: 1rem; white-space: nowrap; }
li:target { background: var(--mark); }
figure.drawn svg { max-width: 100%; height: auto; display: block; }
@media (max-width: 40rem) { figure.drawn svg { min-width: 34rem; max-width: none; } }
.count { font-variant-numeric: tabular-nums; }
@media print { body { max-width: none; } nav.contents, th button::after { display: none; } }
"""


def write_study_page(
    path: Path, collected: Collected, drawings: Mapping[str, str], undrawn: Mapping[str, str], files: Sequence[str]
) -> None:
    """Write the page.

    Args:
        path: of the HTML file.
        collected: the study with what was found of it.
        drawings: SVG by name of the figure.
        undrawn: why a figure is not there, by name.
        files: the report in other formats, by names relative to the page.
    """
    study, sheet = collected.study, lay_out(collected)
    blocks = run_section.gather(collected)

    def anchors(entry: Entry) -> list[str]:
        keys = (run_section.identify(spec) for spec in entry.runs)
        return [blocks[key].anchor for key in keys if key in blocks]

    sections: dict[str, list[str]] = {}
    if sheet.columns:
        sections["Table"] = [cell_table.cell_table(sheet, anchors), *_legend(collected, sheet)]
    if drawings or undrawn:
        sections["Figures"] = list(_figures(drawings, undrawn, files))
    if collected.tests:
        words = TESTS_NOTE if is_tested(collected.tests) else UNTESTED_NOTE
        note = page.paragraph(words.replace("`", ""), note=True)
        sections["Tests"] = [cell_table.comparison_table(collected, sheet), note]
    if sheet.columns:
        sections["Cell by cell"] = [cell_table.long_table(sheet, anchors)]
    if collected.missing:
        sections["Missing"] = [_missing(collected)]
    if blocks:
        sections["Runs"] = [run_section.run_section(block) for block in blocks.values()]
    parts = [page.paragraph(study.caption), _status(collected, sheet), _warnings(collected), _contents(sections)]
    for title, inner in sections.items():
        parts += [f'<h2 id="{_slug(title)}">{title}</h2>', *inner]
    style = cell_table.STYLE + run_section.STYLE + sorting.STYLE + _STYLE
    footer = provenance(collected) or "Nothing is measured yet: all numbers here are the paper's."
    page.write_page(path, study.title, [part for part in parts if part], footer, style=style, scripts=[sorting.SCRIPT])


def _status(collected: Collected, sheet: Sheet) -> str:
    states = [entry.state for entry in sheet.entries.values()]
    wanted = sum(state in ("measured", "missing", "diverged") for state in states)
    done = wanted - states.count("missing")
    words = [f"{done} of {wanted} cells measured", f"{collected.scale} scale"]
    if not wanted:
        words = ["this study has no numbers: see the figures", f"{collected.scale} scale"]
    return f'<p class="note count">{html.escape(" · ".join(words))}</p>'


def _warnings(collected: Collected) -> str:
    if not collected.warnings:
        return ""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in collected.warnings)
    return f'<div class="warn" role="note"><strong>Before you believe this table</strong><ul>{items}</ul></div>'


def _contents(sections: Mapping[str, Sequence[str]]) -> str:
    links = " ".join(f'<a href="#{_slug(title)}">{title}</a>' for title in sections)
    return f'<nav class="contents" aria-label="on this page">{links}</nav>'


def _legend(collected: Collected, sheet: Sheet) -> list[str]:
    has_paper = bool(collected.printed)
    marked = any(entry.best for entry in sheet.entries.values())
    best = f" best of each column shaded{set_apart(collected)};" if marked else ""
    words = f"Mean ± standard deviation (n - 1) over seeds;{best} click a number for its runs."
    if has_paper:
        words += (
            " Below it: the paper's number (as printed, unless a footnote says otherwise), and ours minus the paper's."
        )
    if any(test.pooled is not None for test in collected.tests):
        words += " p: one-sided two-sample t-test, as in the paper; the largest if there are several. All are below."
    parts = [page.paragraph(words, note=True)]
    shown = [number for test in collected.tests if (number := find_printed(collected, test))]
    items = "".join(f'<li id="note-{i}">{html.escape(text)}</li>' for i, text in sheet.footnotes_to(shown))
    if items:
        parts.append(f'<ol class="note">{items}</ol>')
    return [*parts, *(page.paragraph(text, note=True) for text in sheet.notes)]


def _figures(drawings: Mapping[str, str], undrawn: Mapping[str, str], files: Sequence[str]) -> list[str]:
    parts = []
    for number, (name, svg) in enumerate(drawings.items(), start=1):
        links = ", ".join(
            f'<a href="{html.escape(file)}">{file.rpartition(".")[2].upper()}</a>'
            for file in files
            if Path(file).parent.name == "figures" and Path(file).stem == name
        )
        drawn = for_page(svg, f"f{number}")
        parts.append(
            f'<figure class="drawn" id="figure-{html.escape(name)}"><div class="scroll" tabindex="0" role="img" '
            f'aria-label="figure: {html.escape(name)}">{drawn}</div>'
            f'<figcaption class="note">{html.escape(name)}: {links}</figcaption></figure>'
        )
    for name, reason in undrawn.items():
        parts.append(f'<p class="note">Figure {html.escape(name)} is missing: {html.escape(reason)}.</p>')
    return parts


def _missing(collected: Collected) -> str:
    names = [f"<li><code>{html.escape(task.key)}</code> ({task.state})</li>" for task in collected.missing]
    command = f"asrnorm reproduce {collected.study.name} --scale {collected.scale}"
    return (
        f"<p>Not done yet: {len(names)} runs, evaluations or analyses; <code>{html.escape(command)}</code> "
        f"runs them.</p><details><summary>which</summary><ul>{''.join(names)}</ul></details>"
    )


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")
