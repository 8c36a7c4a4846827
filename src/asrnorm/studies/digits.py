"""Digits, from MNIST to four other sets of digits: the paper's tables 1 and 9."""

from collections.abc import Mapping

from asrnorm.studies.spec import STUDIES, Cell, Comparison, Evaluation, Measure, Printed, Row, RunSpec, Study
from asrnorm.studies.transcript import transcribe

DOMAINS = {"SVHN": "svhn", "MNIST-M": "mnist_m", "SYN": "syn", "USPS": "usps"}
COLUMNS = (*DOMAINS, "Avg.")
OURS = "RSDA + ASR-Norm"
OURS_PRINTED = "52.8±3.8 80.8±0.6 64.5±1.1 82.4±1.4 70.1"
ERM_PRINTED = "27.8 52.7 39.7 76.9 49.3"
M_ADA_PRINTED = "42.6 67.9 49.0 78.5 59.5"
ME_ADA_PRINTED = "42.6 63.3 50.4 81.0 59.3"
RSDA_PRINTED = "47.4±4.8 81.5±1.6 62.0±1.2 83.1±1.2 68.5"
# Paper: the batch of BN-Test on Digits is not given, only that it is large.
BN_TEST_BATCH = 500
BN_TEST_BATCHES = (16, 64, 256)
# Ours, and not the paper's: the learned means stay in the range that they have on so many source images.
CONFINED = Evaluation(name="confined-2000", overrides={"confine": 2_000})
OWN_INTERVAL: dict[str, object] = {"method.interval": 10_000}
_BUDGETS = (
    "The rows down to ME-ADA are trained on 10,000 images for 10,001 steps, the RSDA rows on 55,000 images for a "
    "million steps. The paper puts both side by side."
)
_STAND_IN = "The study digits-syn-like has these runs on a generated stand-in for SYN, under its own name."
_INTERVAL = (
    "RSDA searches every 1,000 steps, as the ASR-Norm paper says. The paper's row is copied from RSDA, whose released "
    "run searches every 10,000 steps"
)


_ON_ASR_NORM = (
    "RSDA is within its deviation of the paper. RSDA + ASR-Norm is 1.5 below it, where the paper has it 1.3 above: 8 "
    "below the paper on SVHN, 3 on MNIST-M, level on USPS, and its seeds are as far apart as 65.1 and 71.4 on average. "
    "The weights of four of them (not seed 2) show one reason: the lambdas end at .05 to .07, but the networks behind "
    "them have no bound, and after a million steps without weight decay they answer with numbers of several hundred. "
    "The mean that is subtracted then lies off the image's own, in the second layer by a median of 0.9 to 1.5 "
    "deviations on MNIST and 1.5 to 2.5 on SVHN, there by 13 to 17 in one case of a hundred. Activations that no later "
    "layer has met follow: the mean log-loss on SVHN is 255, 55, 194, 128 and 4, and 1.8 to 2.1 without a norm.",
    "The row confined is those four runs scored again, without more training: no learned mean may be further from an "
    "image's own than it is on 2,000 MNIST training images, channel by channel (asrnorm.confine). MNIST scores as "
    "before, and each unseen set ends above the paper's number, by 0.7 to 2.0; the four were at 69.2 on average, and "
    "are at 73.2. The rule looks at no target, but was found while looking at these, with seeds 0 and 1. Seeds 3 and "
    "4 were trained afterwards, and gain 3.5 and 3.2. What kept the paper's networks in bounds is not known.",
    "There is another: ASR-Norm declines as the training goes on. After 200,000 steps (two seeds, table 9) it is at "
    "48.8 / 80.8 / 83.4, within about a deviation of the paper, and 2.1 above RSDA. In the second layer the network of "
    "the mean stays below 170 to 180 on MNIST in 99 cases of 100, and below 830 (seed 0) after a million steps; the "
    "log-loss on SVHN is 3.7 and 4.8. But confining gains as much there, 4.5, as it gains the same seeds after a "
    "million steps, 4.6: with it or without, they lose 3.4 to 3.5 in between, and why is not known. Other readings of "
    "what the paper leaves open change the average by -1.5 to 1.4 at 200,000 steps (digits-reading).",
    "Tried besides, with a smaller network, one seed each: at ten times the learning rate, 16,000 steps are too few "
    "for the decline, and ASR-Norm, with biases or without, is two to four points below IN and far above no norm; at "
    "thirty times it declines after 12,000 steps, and less so with weight decay on its networks.",
)
_ON_NORMS = (
    "At short scale AS and ASR-Norm are within a deviation or two of the paper, and ASR-Norm above RSDA, as there. IN "
    "and AR, which standardize by the image's own mean and deviation, are 4 above the paper, on SVHN by 11, and so 4 "
    "to 5 above AS and ASR-Norm: at this length the learned standardization costs 4 to 5, where in the paper it "
    "changes the average over these sets by -0.3 (AS over IN) and 0.5 (ASR-Norm over AR). With its learned means "
    "confined to their range on source images, ASR-Norm is level with IN and AR. Whether IN and AR keep their lead for "
    "a million steps was not run; with the same two seeds RSDA alone rises by 2.6 until then, ASR-Norm falls by 3.5.",
    "BN is 8 below the paper, by 14 on SVHN and 7 on MNIST-M, and BN-Test 4 above: the running statistics fit the "
    "other sets badly. How they are averaged does not explain it: a smaller network, two seeds, 8,000 steps at ten "
    "times the rate, averages 56.3 with PyTorch's momentum of .1, 55.5 with .01, 56.2 with statistics taken again on "
    "500 transformed batches and 53.6 on plain MNIST.",
    "SN is 7 above the paper on SVHN, 2 on MNIST-M, and 5 below on USPS. On average it lies between BN and IN, as a "
    "mixture of them would.",
    "RSDA with BN and with IN, seed 0, was trained twice, on two machines and at two commits: the results are the "
    "same to the bit.",
)
_ON_ME_ADA = (
    "ME-ADA is below its paper, by more than the deviation on SVHN and USPS: its code reports the step that is best on "
    "the targets, our row the last one. Initialized and chosen as in its code it has the paper's average "
    "(digits-protocol)."
)


def digits_row(
    label: str,
    recipe: str | None,
    line: str = "- - - - -",
    *,
    copied_from: str | None = None,
    notes: Mapping[str, str] | None = None,
    evaluation: Evaluation | None = None,
    overrides: Mapping[str, object] | None = None,
    not_run: str | None = None,
) -> Row:
    """Return a row with one run behind all its cells.

    Args:
        label: of the row.
        recipe: its name; `None` where the method is not built here.
        line: the paper's numbers.
        copied_from: where the paper has them from.
        notes: on slips, by column.
        evaluation: how the run is scored again.
        overrides: as `--set`.
        not_run: why there is no recipe.
    """
    runs = () if recipe is None else (RunSpec(recipe=recipe, evaluation=evaluation, overrides=overrides or {}),)
    printed = transcribe(COLUMNS, line, copied_from=copied_from, notes=notes)
    cells = {
        column: Cell(measure=_measure(column), runs=runs, printed=printed.get(column))
        for column in COLUMNS
        if runs or column in printed
    }
    return Row(label=label, cells=cells, not_run=not_run)


def _measure(column: str) -> Measure:
    return Measure(quantity="accuracy", domains=(DOMAINS[column],) if column in DOMAINS else ())


@STUDIES.register("table1")
def table1() -> Study:
    """Table 1: Digits, from MNIST to SVHN, MNIST-M, SYN and USPS, compared with other methods."""
    few_shot = "not run: not implemented here; its protocol uses some labeled images of the target"
    return Study(
        name="table1",
        title="Digits",
        caption="Accuracy on four sets of digits after training on MNIST.",
        columns=COLUMNS,
        rows=(
            digits_row("ERM", "digits.erm_none", ERM_PRINTED, copied_from="M-ADA"),
            digits_row("CCSA", None, "25.9 49.3 37.3 83.7 49.1", copied_from="M-ADA", not_run=few_shot),
            digits_row("d-SNE", None, "26.2 51.0 37.8 93.2 52.1", copied_from="M-ADA", not_run=few_shot),
            digits_row(
                "JiGen", None, "33.8 57.8 43.8 77.2 53.1", copied_from="M-ADA", not_run="not run: not implemented here"
            ),
            digits_row("ADA", "digits.ada_none", "35.5 60.4 45.3 77.3 54.6", copied_from="M-ADA"),
            digits_row("M-ADA", "digits.m_ada_none", M_ADA_PRINTED, copied_from="M-ADA"),
            digits_row("ME-ADA", "digits.me_ada_none", ME_ADA_PRINTED, copied_from="ME-ADA"),
            digits_row("RSDA", "digits.rsda_none", RSDA_PRINTED, copied_from="RSDA"),
            digits_row(OURS, "digits.rsda_asr", OURS_PRINTED),
            digits_row(f"{OURS}, confined", "digits.rsda_asr", evaluation=CONFINED),
            digits_row("RSDA, search every 10,000", "digits.rsda_none", overrides=OWN_INTERVAL),
            digits_row(f"{OURS}, search every 10,000", "digits.rsda_asr", overrides=OWN_INTERVAL),
        ),
        comparisons=(Comparison(row=OURS, against="RSDA", differences=transcribe(COLUMNS, "5.4 -0.7 2.5 -0.7 1.6")),),
        footnotes=(
            _BUDGETS,
            f"{_INTERVAL}, as in the last two rows, which are not in the paper. With seed 0, RSDA is 4.7 lower there "
            "than with a search every 1,000 steps, and ASR-Norm 2.5 higher (0.7 lower than its five seeds), so that "
            "the order of the two turns round, as it does between seeds. What we have with 1,000 steps is nearer to "
            "RSDA's published numbers.",
            *_ON_ASR_NORM,
            _ON_ME_ADA,
            "Here ERM, M-ADA and ME-ADA are initialized as in ADA's code. The code of M-ADA (its ERM included) and "
            "that of ME-ADA use PyTorch's default initialization; the study digits-protocol has rows for that.",
            _STAND_IN,
        ),
        suite="digits",
    )


@STUDIES.register("table9")
def table9() -> Study:
    """Table 9: norms with RSDA on Digits, with p-values."""
    slip = {"Avg.": "the four numbers of the row average to 68.9"}
    rows = (
        digits_row("RSDA + BN", "digits.rsda_bn", "39.4±5.2 76.6±2.2 60.5±1.5 84.2±2.1 65.2"),
        _bn_test_row("RSDA + BN-Test", BN_TEST_BATCH, "45.7±2.8 80.3±1.2 59.7±1.4 81.8±1.1 66.9"),
        *(_bn_test_row(f"RSDA + BN-Test ({size})", size) for size in BN_TEST_BATCHES),
        digits_row("RSDA + IN", "digits.rsda_in", "47.1±3.4 80.6±0.9 61.9±1.5 85.4±1.4 68.8"),
        digits_row("RSDA + SN", "digits.rsda_sn", "37.7±3.8 77.1±1.4 60.5±1.8 86.1±1.7 65.4"),
        digits_row("RSDA + SN (IN, LN)", "digits.rsda_sn_in_ln"),
        digits_row("RSDA", "digits.rsda_none", RSDA_PRINTED, copied_from="RSDA"),
        digits_row("RSDA + AR", "digits.rsda_ar", "47.8±3.2 80.0±1.0 64.0±0.9 86.7±1.5 69.6"),
        digits_row("RSDA + AS", "digits.rsda_as", "49.4±2.3 81.4±0.7 63.5±1.2 81.4±1.1 69.3", notes=slip),
        digits_row(OURS, "digits.rsda_asr", OURS_PRINTED),
        digits_row(f"{OURS}, confined", "digits.rsda_asr", evaluation=CONFINED),
    )
    return Study(
        name="table9",
        title="Digits, norms",
        caption="Accuracy on four sets of digits after training on MNIST with RSDA and different norms.",
        columns=COLUMNS,
        rows=rows,
        comparisons=(
            _compare(rows, "RSDA", "0.036 0.193 0.003 0.197 -"),
            _compare(rows, "RSDA + AS", "0.050 0.088 0.115 0.108 -"),
            _compare(rows, "RSDA + AR", "0.020 0.080 0.214 <0.001 -"),
        ),
        footnotes=(
            f"BN-Test is the run of the BN row, scored with the statistics of test batches, of {BN_TEST_BATCH} images "
            "unless the row names a size, since the paper gives none.",
            "The paper leaves BN out of SN on CIFAR-10-C and does not say whether it does so on Digits. Its SN row is "
            "next to its BN row, so we compare it with SN that includes BN. SN (IN, LN), the sizes of BN-Test and the "
            "row confined are not in the paper.",
            "The paper's p-values fit five or six runs per row.",
            f"{_INTERVAL}; table 1 has rows for that too.",
            "RSDA + ASR-Norm at the paper's scale is below RSDA and the paper; table 1 says what is known of it.",
            *_ON_NORMS,
            "Test batches are as even as possible: batches of up to 500 have 491 images on SVHN, 474 on MNIST-M and "
            "401 on USPS.",
            _STAND_IN,
        ),
        suite="digits",
    )


def _bn_test_row(label: str, size: int, line: str = "- - - - -") -> Row:
    evaluation = Evaluation(name=f"bn_test-{size}", overrides={"norm": "bn_test", "evaluate_batch": size})
    return digits_row(label, "digits.rsda_bn", line, evaluation=evaluation)


def _compare(rows: tuple[Row, ...], against: str, line: str) -> Comparison:
    """Ours against a row, with a note where the paper's p-value is one-sided the other way round."""
    by_label = {row.label: row.cells for row in rows}

    def value(label: str, column: str) -> float:
        printed = by_label[label][column].printed
        assert printed is not None
        return printed.value

    worse = {column for column in DOMAINS if value(OURS, column) < value(against, column)}
    note = "one-sided in the other direction: ASR-Norm is lower there"
    printed: dict[str, Printed] = transcribe(COLUMNS, line, notes=dict.fromkeys(worse, note))
    return Comparison(row=OURS, against=against, printed=printed)
