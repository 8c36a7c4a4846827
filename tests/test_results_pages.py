"""The docs show kept results as they are."""

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from asrnorm.cli import demo
from asrnorm.core.config import content_hash
from asrnorm.studies import collect, get_study, list_studies
from asrnorm.studies.decay import decay_curve
from asrnorm.studies.plan import iterate_specs
from asrnorm.studies.spec import scored_hash
from asrnorm.studies.store import find_details, read_log
from tools import readme_figure, result_figures
from tools.result_tables import rewrite

ROOT = Path(__file__).parents[1]
BLOCKS = ("<!-- results:", "<!-- study:", "<!-- averages", "<!-- glance")
PAGES = [
    page
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")
    if any(block in page.read_text() for block in BLOCKS)
]
KEPT = sorted((ROOT / "results").glob("*.jsonl"))
FIGURES = [
    (name, figure, scale)
    for name in list_studies()
    for figure in get_study(name).figures
    for scale in result_figures.SCALES
]
DRAW = "run: python -m tools.result_figures, then python -m tools.result_tables"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_docs_show_the_kept_results(page):
    text = page.read_text()
    assert rewrite(text, ROOT / "results", page) == text, "run: python -m tools.result_tables"


@pytest.mark.parametrize(("name", "figure", "scale"), FIGURES)
def test_the_figures_are_of_the_kept_results(name, figure, scale):
    path = ROOT / result_figures.FOLDER / result_figures.file_name(name, figure, scale)
    found = result_figures.collect_kept(get_study(name), ROOT / "results", scale)
    if path.exists():  # not drawn again: another matplotlib gives other bytes
        mark = f"<!-- drawn from {result_figures.fingerprint(found)} -->"
        assert path.read_text().startswith(mark), f"of other results; {DRAW}"
    else:
        assert result_figures.try_figure(figure, found) is None, f"it can be drawn and is not there; {DRAW}"


def test_every_figure_is_of_a_study():
    names = {result_figures.file_name(*figure) for figure in FIGURES}
    assert {path.name for path in (ROOT / result_figures.FOLDER).iterdir()} <= names, DRAW


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.name)
def test_a_kept_result_names_its_commit_settings_and_seed(path):
    results = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(result["schema"] == 1 and result["commit"] and result["config_hash"] for result in results)
    keys = [(result["recipe"], result["scale"], result["seed"], result["config_hash"]) for result in results]
    assert len(set(keys)) == len(keys)


def test_every_kept_result_is_found_by_a_study():
    kept = {}
    for path in KEPT:
        if path.stem != "demo":  # shown as a file of results, not as a study
            for result in map(json.loads, path.read_text().splitlines()):
                kept[result["config_hash"]] = (result["seed"], result["scale"])
    specs = {spec for name in list_studies() for spec in iterate_specs(get_study(name))}
    found = {scored_hash(spec, *where) for spec in specs for where in set(kept.values())}
    assert not kept.keys() - found, "these results are of no row of any study"


STORY = (  # of docs/reproduction.md: what it says, and the number of a row
    ("ASR-Norm reaches 86.0, the paper's", "table2", "paper", "ADA + ASR-Norm", 86.0),
    ("already reaches 85.2", "table2", "paper", "ERM + ASR-Norm", 85.2),
    ("ASR-Norm reaches 61.1", "table3", "paper", "RSC + ASR-Norm", 61.1),
    ("rises from 57.9 to 63.6", "table3", "paper", "ERM", 57.9),
    ("rises from 57.9 to 63.6", "table3", "paper", "ERM + ASR-Norm", 63.6),
    ("[64.5]", "table3-chosen", "paper", "RSC + ASR-Norm", 64.5),
    ("[67.8]", "pacs-stated", "paper", "ERM + ASR-Norm, stages", 67.8),
    ("is at 68.4, below", "table1", "paper", "RSDA + ASR-Norm", 68.4),
    ("RSDA alone with 69.9", "table1", "paper", "RSDA", 69.9),
    ("69.2 to 73.2", "table1", "paper", "RSDA + ASR-Norm, confined", 73.2),
    ("[63.2]", "table3", "paper", "ERM + IN", 63.2),
    ("BatchNorm has 73.1", "cifar-erm", "short", "ERM + BN", 73.1),
    ("81.7 and ASR-Norm 83.5", "cifar-erm", "short", "ERM + IN", 81.7),
    ("81.7 and ASR-Norm 83.5", "cifar-erm", "short", "ERM + ASR-Norm", 83.5),
    ("75.2 to 71.0", "table9", "short", "RSDA + IN", 75.2),
    ("75.2 to 71.0", "table9", "short", "RSDA + ASR-Norm", 71.0),
    ("[66.1]", "pacs-lambda", "paper", "ERM + ASR-Norm, lambdas x1,000", 66.1),
    *(
        (text, study, "paper", row, number)
        for study, text, *numbers in (
            ("digits-best", "BatchNorm 84.8 and instance norm 84.9", 84.7, 84.8, 84.9),
            ("pacs-best", "71.4 and 72.1", 71.9, 71.4, 72.1),
        )
        for row, number in zip(("ASR-Norm", "BN", "IN"), numbers, strict=True)
    ),
)

CLAIMS = [  # page, what it says, and the numbers of it: a study's row, or the difference of two rows
    ("README.md", "5.8 points over BatchNorm on PACS", ("table3", "paper", "ERM + ASR-Norm", "ERM"), 5.8),
    ("README.md", "8.8 on CIFAR-10-C", ("cifar-erm", "paper", "ERM + ASR-Norm", "ERM + BN"), 8.8),
    ("README.md", "it is 0.4 points behind", ("pacs-stated", "paper", "ERM + ASR-Norm", "ERM + IN"), 0.4),
    ("README.md", "on CIFAR-10-C 1.8", ("cifar-erm", "short", "ERM + ASR-Norm", "ERM + IN"), 1.8),
    ("README.md", "4.2 ahead", ("table9", "short", "RSDA + IN", "RSDA + ASR-Norm"), 4.2),
    ("README.md", "0.7 points less on clean", ("table7/In-domain", "paper", "ADA + BN", "ADA + ASR-Norm"), 0.7),
    ("README.md", "ends 1.5 below no norm", ("table1", "paper", "RSDA", "RSDA + ASR-Norm"), 1.5),
    ("README.md", "gains 1.8 where the paper has 6.3", ("table3", "paper", "RSC + ASR-Norm", "RSC"), 1.8),
    ("README.md", "best recipe is 0.5 points behind on PACS", ("pacs-best", "paper", "ASR-Norm", "BN"), 0.5),
    ("README.md", "and 0.1 ahead on Digits", ("digits-best", "paper", "BN", "ASR-Norm"), 0.1),
    ("README.md", "reaches 68.6 (n 2)", ("pacs-best", "paper", "ASR-Norm, lr .02"), 68.6),
    ("README.md", "instance norm 68.9", ("pacs-best", "paper", "IN, lr .02"), 68.9),
    ("README.md", "BatchNorm 69.4 (n 1)", ("pacs-best", "paper", "BN, lr .02"), 69.4),
    ("README.md", "83.8)", ("digits-best", "paper", "ASR-Norm, 10,000 images"), 83.8),
    *(
        ("docs/how-to/which-training.md", "| 57.9 | 63.2 | 63.6 |", ("pacs-stated", "paper", row), number)
        for row, number in (("ERM", 57.9), ("ERM + IN", 63.2), ("ERM + ASR-Norm", 63.6))
    ),
    ("docs/how-to/which-training.md", "| 59.7 | | |", ("pacs-stated", "paper", "ERM, lr 0.01"), 59.7),
    *(
        ("docs/how-to/which-training.md", "| 73.1 | 81.7 | 83.5 |", ("cifar-erm", "short", f"ERM + {row}"), number)
        for row, number in (("BN", 73.1), ("IN", 81.7), ("ASR-Norm", 83.5))
    ),
    *(
        ("docs/how-to/which-training.md", "| 58.7 | 75.2 | 71.0 |", ("table9", "short", f"RSDA + {row}"), number)
        for row, number in (("BN", 58.7), ("IN", 75.2), ("ASR-Norm", 71.0))
    ),
    *(
        ("docs/how-to/which-training.md", f"| {text} |", (study, "paper", row), number)
        for text, study, row, number in (
            ("71.4 | 72.1 | 71.9 | 63.6", "pacs-best", "BN", 71.4),
            ("71.4 | 72.1 | 71.9 | 63.6", "pacs-best", "IN", 72.1),
            ("71.4 | 72.1 | 71.9 | 63.6", "pacs-best", "ASR-Norm", 71.9),
            ("61.8 | 65.7 | 65.3 | 50.9", "pacs-best/Photo", "BN", 61.8),
            ("61.8 | 65.7 | 65.3 | 50.9", "pacs-best/Photo", "IN", 65.7),
            ("61.8 | 65.7 | 65.3 | 50.9", "pacs-best/Photo", "ASR-Norm", 65.3),
            ("61.8 | 65.7 | 65.3 | 50.9", "pacs-stated/Photo", "ERM + ASR-Norm", 50.9),
            ("84.8 | 84.9 | 84.7 | 68.4 (with RSDA)", "digits-best", "BN", 84.8),
            ("84.8 | 84.9 | 84.7 | 68.4 (with RSDA)", "digits-best", "IN", 84.9),
            ("84.8 | 84.9 | 84.7 | 68.4 (with RSDA)", "digits-best", "ASR-Norm", 84.7),
            ("83.8", "digits-best", "ASR-Norm, 10,000 images", 83.8),
        )
    ),
    ("docs/how-to/which-training.md", "From photos it loses 3.5", ("pacs-best/Photo", "paper", "ASR-Norm", "BN"), 3.5),
    ("docs/how-to/which-training.md", "no norm 68.9", ("table9", "short", "RSDA"), 68.9),
    (
        "docs/how-to/which-training.md",
        "0.4 points on PACS",
        ("pacs-stated", "paper", "ERM + ASR-Norm", "ERM + IN"),
        0.4,
    ),
    ("docs/how-to/which-training.md", "1.8 on CIFAR", ("cifar-erm", "short", "ERM + ASR-Norm", "ERM + IN"), 1.8),
    ("docs/how-to/which-training.md", "is 4.2 below", ("table9", "short", "RSDA + IN", "RSDA + ASR-Norm"), 4.2),
    *(
        ("docs/reproduction.md", "68.6 to 74.3", ("table7/Adversarial", "paper", row), number)
        for row, number in (("ADA + ASR-Norm", 68.6), ("ADA + BN", 74.3))
    ),
    *(
        ("docs/how-to/which-training.md", "| 59.2 | 65.0 | 65.0 |", ("table3-chosen", "paper", row), number)
        for row, number in (("ERM", 59.2), ("ERM + IN", 65.0), ("ERM + ASR-Norm", 65.0))
    ),
    ("docs/README.md", "rises from 57.9 to 63.6", ("table3", "paper", "ERM"), 57.9),
    ("docs/README.md", "rises from 57.9 to 63.6", ("table3", "paper", "ERM + ASR-Norm"), 63.6),
    ("docs/README.md", "rises from 75.3 to 86.0", ("table2", "paper", "ADA"), 75.3),
    ("docs/README.md", "rises from 75.3 to 86.0", ("table2", "paper", "ADA + ASR-Norm"), 86.0),
    *(("docs/reproduction.md", text, (study, scale, row), number) for text, study, scale, row, number in STORY),
    ("docs/evaluation/rule.md", "from 64.5 to 61.1", ("table3-chosen", "paper", "RSC + ASR-Norm"), 64.5),
    ("docs/evaluation/rule.md", "64.5 to 61.1", ("table3", "paper", "RSC + ASR-Norm"), 61.1),
    ("docs/norms/asr.md", "RSC takes 0.5 to 2.5 away", ("table3", "paper", "ERM + ASR-Norm", "RSC + ASR-Norm"), 2.5),
    ("docs/studies/pacs-stated.md", "average is 67.8", ("pacs-stated", "paper", "ERM + ASR-Norm, stages"), 67.8),
]


@cache
def collect_once(study, scale):
    return collect(get_study(study), runs=ROOT / "no-runs", kept=ROOT / "results", scale=scale)


@pytest.mark.parametrize(("page", "text", "rows", "number"), CLAIMS)
def test_a_claim_in_prose_holds(page, text, rows, number):
    assert text in (ROOT / page).read_text()
    study, scale, *labels = rows
    study, _, column = study.partition("/")
    found = collect_once(study, scale)
    means = [found.cells[label, column or "Avg."].mean for label in labels]
    assert abs(means[0] - sum(means[1:]) - number) <= 0.0501


def measured_steps(pattern, path, baseline):
    """How long steps take relative to the baseline of the same work: the least and the most."""
    ratios = []
    for file in (ROOT / "bench" / "results").glob(pattern):
        steps = [row for row in json.loads(file.read_text())["rows"] if "training step" in row["work"]]
        rows = [row for row in steps if "reduce-overhead" not in row["work"]]
        times = {(row["work"], row["path"]): row["extra"]["ms"] for row in rows}
        ratios += [time / times[work, baseline] for (work, name), time in times.items() if re.fullmatch(path, name)]
    return min(ratios), max(ratios)


@pytest.mark.parametrize(
    ("text", "files", "path", "baseline"),
    [
        ("0.79 to 0.93 times", "step-*--h200.json", "asr .*, fused, CUDA graph", "bn, CUDA graph"),
        ("1.6 to 2.2 times", "eager--h200.json", "asr", "bn"),
        ("0.4 to 0.9", "eager--h200.json", "asrnorm.capture of asr", "bn"),
    ],
)
def test_the_cost_in_the_readme_is_measured(text, files, path, baseline):
    assert text in (ROOT / "README.md").read_text()
    said = re.findall(r"[\d.]+", text)
    digits = len(said[0].partition(".")[2])
    assert said == [f"{ratio:.{digits}f}" for ratio in measured_steps(files, path, baseline)]


def claims_of(study, scale, *claims):
    """What the page of a study says: the words, the column, the rows as above ("paper: ROW" is printed), the number."""
    return [(study, scale, *claim) for claim in claims]


STUDY_CLAIMS = [
    *claims_of(
        "table1",
        "paper",
        ("RSDA + ASR-Norm is 1.5 below RSDA", "Avg.", ("RSDA", "RSDA + ASR-Norm"), "1.5"),
        ("it is 1.3 above in the paper", "Avg.", ("paper: RSDA + ASR-Norm", "paper: RSDA"), "1.3"),
        ("it is 8 below the paper on SVHN", "SVHN", ("paper: RSDA + ASR-Norm", "RSDA + ASR-Norm"), "8"),
        ("3 below on MNIST-M", "MNIST-M", ("paper: RSDA + ASR-Norm", "RSDA + ASR-Norm"), "3"),
        ("by 0.7 to 2.0", "MNIST-M", ("RSDA + ASR-Norm, confined", "paper: RSDA + ASR-Norm"), "0.7"),
        ("by 0.7 to 2.0", "SVHN", ("RSDA + ASR-Norm, confined", "paper: RSDA + ASR-Norm"), "2.0"),
        ("rises from 69.2 to 73.2", "Avg.", ("RSDA + ASR-Norm, confined",), "73.2"),
    ),
    *claims_of(
        "table2",
        "paper",
        ("The gain over ADA is 10.6", "Avg.", ("ADA + ASR-Norm", "ADA"), "10.6"),
        ("against 10.3 in the paper", "Avg.", ("paper: ADA + ASR-Norm", "paper: ADA"), "10.3"),
        ("by 1.7 at level 1 and 4.5 at level 5", "Level 1", ("ERM + ASR-Norm", "paper: ERM + ASR-Norm"), "1.7"),
        ("by 1.7 at level 1 and 4.5 at level 5", "Level 5", ("ERM + ASR-Norm", "paper: ERM + ASR-Norm"), "4.5"),
        ("ADA adds 0.8 to its average", "Avg.", ("ADA + ASR-Norm", "ERM + ASR-Norm"), "0.8"),
        ("against 4.0 in the paper", "Avg.", ("paper: ADA + ASR-Norm", "paper: ERM + ASR-Norm"), "4.0"),
        ("by 1.7 at level 1 and 3.3 at level 5", "Level 1", ("ERM", "paper: ERM"), "1.7"),
        ("by 1.7 at level 1 and 3.3 at level 5", "Level 5", ("ERM", "paper: ERM"), "3.3"),
        ("ADA is 1.1 below ERM on average", "Avg.", ("ERM", "ADA"), "1.1"),
        ("it is 1.9 above", "Avg.", ("paper: ADA", "paper: ERM"), "1.9"),
        ("is over ME-ADA (83.3)", "Avg.", ("paper: ADA + ASR-Norm", "paper: ME-ADA"), "2.7"),
    ),
    *claims_of(
        "table2",
        "short",
        ("they are level (73.0 and 73.1, three seeds)", "Avg.", ("ADA",), "73.0"),
        ("they are level (73.0 and 73.1, three seeds)", "Avg.", ("ERM",), "73.1"),
        ("Its 0.9 over ERM + ASR-Norm", "Avg.", ("ADA + ASR-Norm", "ERM + ASR-Norm"), "0.9"),
    ),
    *claims_of(
        "table3",
        "paper",
        ("ASR-Norm gains 5.8 points over BatchNorm", "Avg.", ("ERM + ASR-Norm", "ERM"), "5.8"),
        ("With RSC it gains 1.8", "Avg.", ("RSC + ASR-Norm", "RSC"), "1.8"),
        ("against 6.3 in the paper", "Avg.", ("paper: RSC + ASR-Norm", "paper: RSC"), "6.3"),
        ("is 7.0 below the paper", "Avg.", ("paper: RSC + ASR-Norm", "RSC + ASR-Norm"), "7.0"),
    ),
    *claims_of(
        "table6",
        "paper",
        ("Our run is 0.003 above it on average", "Avg.", ("ADA + BN", "paper: ADA + BN"), "0.003"),
        ("the gap to ASR-Norm is 0.017", "Avg.", ("ADA + BN", "ADA + ASR-Norm"), "0.017"),
        ("where the paper has 0.013", "Avg.", ("paper: ADA + BN", "paper: ADA + ASR-Norm"), "0.013"),
    ),
    *claims_of(
        "table9",
        "short",
        ("are 4 above the paper (11 on SVHN)", "Avg.", ("RSDA + IN", "paper: RSDA + IN"), "4"),
        ("are 4 above the paper (11 on SVHN)", "SVHN", ("RSDA + IN", "paper: RSDA + IN"), "11"),
        ("are 4 above the paper (11 on SVHN)", "Avg.", ("RSDA + AR", "paper: RSDA + AR"), "4"),
        ("BN is 8 below the paper (14 on SVHN, 7 on MNIST-M)", "Avg.", ("paper: RSDA + BN", "RSDA + BN"), "8"),
        ("BN is 8 below the paper (14 on SVHN, 7 on MNIST-M)", "SVHN", ("paper: RSDA + BN", "RSDA + BN"), "14"),
        ("BN is 8 below the paper (14 on SVHN, 7 on MNIST-M)", "MNIST-M", ("paper: RSDA + BN", "RSDA + BN"), "7"),
        ("and BN-Test 4 above it", "Avg.", ("RSDA + BN-Test", "paper: RSDA + BN-Test"), "4"),
        ("SN is 7 above the paper on SVHN, 2 on MNIST-M", "SVHN", ("RSDA + SN", "paper: RSDA + SN"), "7"),
        ("SN is 7 above the paper on SVHN, 2 on MNIST-M", "MNIST-M", ("RSDA + SN", "paper: RSDA + SN"), "2"),
        ("and 5 below on USPS", "USPS", ("paper: RSDA + SN", "RSDA + SN"), "5"),
    ),
    *claims_of(
        "cifar-erm",
        "short",
        ("learned rescaling (AR) adds 0.3 to it", "Avg.", ("ERM + AR", "ERM + IN"), "0.3"),
        ("learned standardization (AS) 1.6", "Avg.", ("ERM + AS", "ERM + IN"), "1.6"),
        ("both together (ASR-Norm) 1.8", "Avg.", ("ERM + ASR-Norm", "ERM + IN"), "1.8"),
    ),
    *claims_of(
        "digits-protocol",
        "paper",
        (
            "ME-ADA reaches its paper's average if the step is chosen on the targets, 62.3",
            "Avg.",
            ("ME-ADA, PyTorch's initialization, oracle",),
            "62.3",
        ),
    ),
    *claims_of(
        "digits-reading",
        "short",
        (
            "which is .1 and .3 ahead of the recipe",
            "Source, held out",
            ("RSDA + ASR-Norm, no biases", "RSDA + ASR-Norm"),
            "0.1",
        ),
        (
            "which is .1 and .3 ahead of the recipe",
            "Source, shifted",
            ("RSDA + ASR-Norm, no biases", "RSDA + ASR-Norm"),
            "0.3",
        ),
        ("IN is 4 above ASR-Norm on the unseen sets", "Unseen", ("RSDA + IN", "RSDA + ASR-Norm"), "4"),
    ),
    *claims_of(
        "pacs-lambda",
        "paper",
        ("2.1 points at 100 times", "Avg.", ("ERM + ASR-Norm, lambdas x100", "ERM + ASR-Norm"), "2.1"),
        ("2.4 at 1,000 times", "Avg.", ("ERM + ASR-Norm, lambdas x1,000", "ERM + ASR-Norm"), "2.4"),
    ),
    *claims_of(
        "pacs-stated",
        "paper",
        ("at .004 it loses 1.6 to 1.8 points", "Avg.", ("ERM, lr 0.01", "ERM"), "1.8"),
        ("at .004 it loses 1.6 to 1.8 points", "Avg.", ("RSC, lr 0.01", "RSC"), "1.6"),
        ("3.9 over BatchNorm at .01", "Avg.", ("ERM + ASR-Norm", "ERM, lr 0.01"), "3.9"),
        ("With RSC it gains 1.8 and .2", "Avg.", ("RSC + ASR-Norm", "RSC, lr 0.01"), "0.2"),
        ("61.2 with the version's own settings", "Avg.", ("RSC, lr 0.01, 20 epochs of 64",), "61.2"),
        ("at .004 60.1 (59.3 with steps of ERM)", "Avg.", ("RSC, 30 epochs of 64",), "60.1"),
        ("at .004 60.1 (59.3 with steps of ERM)", "Avg.", ("RSC",), "59.3"),
        ("and 62.4 with ASR-Norm (61.1)", "Avg.", ("RSC + ASR-Norm, 30 epochs of 64",), "62.4"),
        ("and 62.4 with ASR-Norm (61.1)", "Avg.", ("RSC + ASR-Norm",), "61.1"),
        ("and 67.2 with RSC", "Avg.", ("RSC + ASR-Norm, stages",), "67.2"),
    ),
]


@pytest.mark.parametrize(("study", "scale", "text", "column", "labels", "number"), STUDY_CLAIMS)
def test_a_claim_on_the_page_of_a_study_holds(study, scale, text, column, labels, number):
    assert text in (ROOT / "docs" / "studies" / f"{study}.md").read_text()
    found = collect_once(study, scale)

    def read(label):
        printed = label.removeprefix("paper: ")
        return found.cells[label, column].mean if printed == label else found.printed[printed, column].value

    values = [read(label) for label in labels]
    half_a_digit = 0.5 * 10 ** -len(number.partition(".")[2])
    assert abs(values[0] - sum(values[1:]) - float(number)) <= half_a_digit + 1e-4


def test_the_lambdas_on_pacs_end_where_weight_decay_alone_puts_them():
    """The notes of the PACS tables say so, with these numbers."""
    details = find_details(ROOT / "results")
    ends, gates, distances = [], [], {True: [], False: []}
    configs = [
        spec.config(seed, "paper") for spec in set(iterate_specs(get_study("fig-lambda-pacs"))) for seed in (0, 1)
    ]
    for config in configs:
        rows = [row for row in read_log(details.get(content_hash(config))) if row.get("lambdas")]
        for name, value in (pair for layer in rows[-1]["lambdas"].values() for pair in layer.items()) if rows else ():
            decays = config.optim.decay_lambdas
            distances[decays].append(abs(value - decay_curve(config, name, [rows[-1]["step"]])[0]))
            if decays:
                (ends if name in ("lambda_mu", "lambda_sigma") else gates).append(value)
    assert len(ends) == len(gates) == 4 * 2 * 10 * 2  # sources, seeds, layers, two lambdas
    assert max(distances[True]) < 0.0011
    assert 0 < max(distances[False]) < 0.0009
    assert (round(min(ends), 3), round(max(ends), 3)) == (0.049, 0.052)
    assert (round(min(gates), 3), round(max(gates), 3)) == (0.007, 0.008)


def test_there_are_results_and_a_page_that_shows_them():
    assert PAGES
    assert KEPT


def demo_gains(recipe, baseline):
    """How many points a recipe is ahead, seed by seed, in the demo's results."""
    results = [json.loads(line) for line in (ROOT / "results" / "demo.jsonl").read_text().splitlines()]
    found = {(r["recipe"], r["seed"]): 100 * r["average_accuracy"] for r in results}
    return [found[f"digits_mini.{recipe}", seed] - found[f"digits_mini.{baseline}", seed] for seed in range(3)]


def test_the_page_on_the_demo_says_what_its_seeds_show():
    others = ("erm_none", "erm_in", "erm_asr", "rsda_none", "rsda_asr")
    assert min(min(demo_gains(recipe, "erm_bn")) for recipe in (*others, "best")) > 0
    assert min(min(demo_gains("best", recipe)) for recipe in others) > 0
    learned = demo_gains("erm_asr", "erm_in")
    assert min(learned) < 0 < max(learned)
    assert sum(gain > 0 for gain in demo_gains("rsda_asr", "rsda_none")) == 2
    assert round(fmean(demo_gains("rsda_none", "erm_none"))) == 14
    assert round(fmean(demo_gains("rsda_asr", "erm_asr"))) == 12


def test_the_demo_trains_what_its_kept_results_are_of():
    results = [json.loads(line) for line in (ROOT / "results" / "demo.jsonl").read_text().splitlines()]
    assert [(r["recipe"], r["seed"], r["config_hash"]) for r in results] == [
        (name, seed, content_hash(demo.config(name, seed))) for name in demo.ROWS.values() for seed in range(demo.SEEDS)
    ]


@pytest.mark.parametrize("look", readme_figure.FILES)
def test_the_figure_of_the_readme_is_of_the_kept_results(look):
    bars = readme_figure.read_accuracies(ROOT / readme_figure.RESULTS)
    assert all(len(seeds) == demo.SEEDS for seeds in bars.values())
    text = (ROOT / readme_figure.FILES[look]).read_text()
    mark = f"<!-- drawn from {readme_figure.fingerprint(bars)} -->"
    assert text.startswith(mark), "run: python -m tools.readme_figure"
