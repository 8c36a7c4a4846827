"""The report of a study: Markdown, CSV, LaTeX, figures, and one page that holds all of it."""

from pathlib import Path

from asrnorm.core.files import write_whole
from asrnorm.reporting.figure import save, to_svg
from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.latex import to_latex, to_latex_table
from asrnorm.reporting.study_page import write_study_page
from asrnorm.reporting.table import to_csv, to_markdown
from asrnorm.studies.collect import Collected


def write_report(collected: Collected, out: Path) -> list[Path]:
    r"""Write `<study>.{md,csv,tex,html}`, `<study>-table.tex` for `\input`, and `figures/*.{svg,pdf,png}`.

    A study without numbers has no table: it is written as Markdown, page and figures.

    Args:
        collected: the study with what was found of it; it may be little or nothing.
        out: folder of the report; files of an earlier one are replaced, each when the new one is whole.

    Returns:
        The files, the page last.

    Raises:
        MissingDependencyError: a figure needs matplotlib or scikit-learn.
        StorageError: a file cannot be written.
    """
    name = collected.study.name
    drawn: list[Path] = []
    drawings, undrawn = {}, {}
    for figure_name in collected.study.figures:
        try:
            figure = FIGURES[figure_name](collected, out)
        except NothingToDrawError as reason:
            undrawn[figure_name] = str(reason)
            for old in (out / "figures").glob(f"{figure_name}.*"):
                old.unlink()  # of an earlier report: it would pass for this one's
            continue
        drawings[figure_name] = to_svg(figure)
        drawn += save(figure, out / "figures", figure_name)
    texts = {f"{name}.md": to_markdown(collected, list(drawings))}
    if collected.study.columns:
        texts |= {
            f"{name}.csv": to_csv(collected),
            f"{name}.tex": to_latex(collected),
            f"{name}-table.tex": to_latex_table(collected) + "\n",
        }
    for file, text in texts.items():
        write_whole(out / file, text)
    paths = [*(out / file for file in texts), *drawn]
    page = out / f"{name}.html"
    files = [path.relative_to(out).as_posix() for path in paths]
    write_study_page(page, collected, drawings, undrawn, files)
    return [*paths, page]
