import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from asrnorm.reporting import latex
from asrnorm.reporting.latex import _join, escape
from asrnorm.reporting.sheet import build_sheet
from asrnorm.studies import collect, get_study, list_studies
from helpers.made_up_run import make_up_runs

TEX = shutil.which("pdflatex") or shutil.which("tectonic")


def to_latex(collected):
    return latex.to_latex(build_sheet(collected))


def to_latex_table(collected):
    return latex.to_latex_table(build_sheet(collected))


def check_structure(text):
    """Every environment and brace is closed, and every line of a table has as many cells as its head."""
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in body.splitlines() if line.rstrip().endswith(("\\\\", "\\midrule")) and "&" in line]
        assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) <= 1


def test_the_layout_is_the_papers(small):
    text = to_latex_table(small)
    check_structure(text)
    assert r"Method & SVHN & USPS & Avg. \\ \midrule" in text
    assert r"\toprule" in text
    assert r"\bottomrule" in text
    assert text.count("\\midrule\n") >= 2  # between the groups, and before the comparisons
    assert re.search(r"RSDA \+ ASR-Norm & \{\\bfseries [\d.]+\$\\pm\$[\d.]+\}", text)
    assert r"$p$-value: RSDA + ASR-Norm vs.\ RSDA" in text
    assert r"\textcolor{gray}{$<$0.001}" in text
    assert r"\textit{missing}" in text
    assert r"CCSA \textcolor{gray}{(paper)} & \textcolor{gray}{25.9}\textsuperscript{1} & \textcolor{gray}{-}" in text
    assert r"100 \% made-up digits \& more" in text


def test_a_transposed_study_has_its_rows_across(small):
    text = to_latex_table(replace(small, study=replace(small.study, transposed=True)))
    check_structure(text)
    assert r"Domain & ERM & CCSA & ADA & RSDA & RSDA + ASR-Norm & RSDA + IN \\ \midrule" in text


def test_a_line_does_not_begin_with_what_a_line_break_takes_for_its_own():
    assert _join(["[night] cam", "1"]) == r"{}[night] cam & 1 \\"
    assert _join(["night", "1"]) == r"night & 1 \\"


def test_warnings_stand_under_the_table(small):
    assert r"\textbf{Warning:} two commits." in to_latex_table(replace(small, warnings=("two commits",)))


def test_letters_that_tex_does_not_know_are_written_out():
    assert escape("λ ≤ 5 ± 1 ↑") == r"$\lambda$ $\leq$ 5 $\pm$ 1 $\uparrow$"
    assert escape("\N{SNOWMAN}") == "?"
    assert escape("a\\b{c}") == r"a\textbackslash{}b\{c\}"


@pytest.mark.parametrize("name", list_studies())
def test_every_study_is_well_formed_before_anything_is_run(name, tmp_path):
    check_structure(to_latex(collect(get_study(name), runs=tmp_path, scale="smoke", seeds=[0])))


def test_the_papers_lines_say_what_they_are_where_ours_are_not_there():
    text = to_latex_table(collect(get_study("table9"), runs=Path("nowhere"), seeds=[0]))
    for against in ("RSDA", "RSDA + AS", "RSDA + AR"):
        assert rf"$p$-value: RSDA + ASR-Norm vs.\ {against} \textcolor{{gray}}{{(paper)}} & " in text
    text = to_latex_table(collect(get_study("table1"), runs=Path("nowhere"), seeds=[0]))
    assert r"$\Delta$: RSDA + ASR-Norm vs.\ RSDA \textcolor{gray}{(paper)} & \textcolor{gray}{5.4}" in text


def test_footnotes_stand_where_their_marks_do():
    note = "One-sided in the other direction"
    found = collect(get_study("table9"), runs=Path("nowhere"), seeds=[0])
    assert note in to_latex_table(found)
    turned = replace(found, study=replace(found.study, transposed=True))
    assert note not in to_latex_table(turned)


@pytest.mark.skipif(TEX is None, reason="no TeX on this machine: apt-get install texlive-latex-recommended")
def test_the_document_compiles_as_it_is_and_the_table_by_input(small, tmp_path):
    (tmp_path / "small.tex").write_text(to_latex(small))
    (tmp_path / "small-table.tex").write_text(to_latex_table(small))
    packages = r"\usepackage{booktabs,graphicx,xcolor}"
    whole = rf"\documentclass{{article}}{packages}\begin{{document}}\input{{small-table}}\end{{document}}"
    (tmp_path / "other.tex").write_text(whole)
    for name in ("small", "other"):
        flags = ["-interaction=nonstopmode", "-halt-on-error"] if TEX.endswith("pdflatex") else []
        done = subprocess.run([TEX, *flags, f"{name}.tex"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
        assert (tmp_path / f"{name}.pdf").stat().st_size > 5000


@pytest.mark.parametrize(
    ("p", "corrected", "text"),
    [(0.01, 0.05, r"$\mathbf{0.010}$"), (0.01, 0.051, "$0.010$"), (1e-5, 1e-4, r"$\mathbf{<0.001}$")],
)
def test_p_values_are_bold_that_holm_leaves_up_to_a_twentieth(small, p, corrected, text):
    found = replace(small, tests=tuple(replace(test, pooled=p, holm=corrected) for test in small.tests))
    table = to_latex_table(found)
    line = next(line for line in table.splitlines() if line.startswith("$p$-value: "))
    assert line == rf"$p$-value: RSDA + ASR-Norm vs.\ RSDA & {text} & {text} & {text} \\"
    assert f"{text} & RSDA" in to_latex(found)
    assert "bold ones are at most .05 after Holm's correction for all tests" in table


def test_nothing_is_said_of_p_values_that_are_not_there(small):
    assert "Holm" not in to_latex(replace(small, tests=tuple(replace(test, pooled=None) for test in small.tests)))
    turned = replace(small, study=replace(small.study, transposed=True))
    assert "Holm" not in to_latex_table(turned)
    assert "Holm" in to_latex(turned)  # cell by cell


def test_differences_have_the_sign_of_ours_less_the_rivals(small):
    tests = tuple(replace(test, difference=gap) for test, gap in zip(small.tests, (5.44, -0.71, 0.0), strict=True))
    text = to_latex_table(replace(small, tests=tests))
    assert r"$\Delta$: RSDA + ASR-Norm vs.\ RSDA & 5.4 & $-$0.7 & 0.0 \\" in text


def test_the_papers_difference_is_over_the_domains_that_ours_is_over(tmp_path):
    study = get_study("table1")
    make_up_runs(study, tmp_path, seeds=[0], gone=["syn"])
    text = to_latex_table(collect(study, runs=tmp_path, scale="smoke", seeds=[0]))
    assert re.search(r"RSDA & .* & \\textit\{no data\} & ", text)
    after = text[text.index(r"$\Delta$: RSDA + ASR-Norm vs.\ RSDA") :].splitlines()[1]
    assert after.endswith(r"\textcolor{gray}{1.3}\textsuperscript{5} \\")
    assert (
        r"\textsuperscript{5}The difference of the paper's means on the available domains; the paper prints 1.6."
        in text
    )
