"""The printed numbers fit each other: a mistyped one would not."""

import pytest

from asrnorm.studies import get_study
from asrnorm.studies.transcript import transcribe

TABLES = [f"table{number}" for number in (1, 2, 3, 4, 5, 6, 9, 10)]
# The paper's own slips; each carries a note that says so.
SLIPS = {
    ("table2", "PGD"),
    ("table4", "AdversarialDropout"),
    ("table5", "ADA + AS"),
    ("table9", "RSDA + AS"),
    ("table10", "ADA + AS"),
}
HALF_A_DIGIT = {"table6": 0.0005}


def printed_rows(name):
    study = get_study(name)
    for row in study.rows:
        numbers = {column: cell.printed for column, cell in row.cells.items() if cell.printed is not None}
        if set(numbers) == set(study.columns):
            yield row.label, numbers


@pytest.mark.parametrize("name", TABLES)
def test_averages_are_those_of_the_row_but_for_the_named_slips(name):
    half = HALF_A_DIGIT.get(name, 0.05)
    rows = list(printed_rows(name))
    assert rows
    for label, numbers in rows:
        *parts, average = (numbers[column] for column in get_study(name).columns)
        mean = sum(part.value for part in parts) / len(parts)
        fits = abs(mean - average.value) <= half + 1e-9
        assert fits != ((name, label) in SLIPS), (label, mean, average.value)
        if not fits:
            assert any(number.note for number in numbers.values()), label


@pytest.mark.parametrize(("name", "label"), sorted(SLIPS - {("table4", "AdversarialDropout")}))
def test_the_note_on_a_slip_has_the_true_average(name, label):
    *parts, average = dict(printed_rows(name))[label].values()
    assert average.note.endswith(f"average to {sum(part.value for part in parts) / len(parts):.1f}")


def test_the_note_on_adversarial_dropout_has_the_number_that_fits():
    numbers = dict(printed_rows("table4"))["AdversarialDropout"]
    others = sum(numbers[column].value for column in ("Artpaint", "Cartoon", "Sketch"))
    assert "96.1 does" in numbers["Photo"].note
    assert (others + 96.1) / 4 == pytest.approx(numbers["Avg."].value, abs=0.0501)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table6"])
def test_printed_differences_are_those_of_the_rows(name):
    rows = dict(printed_rows(name))
    pairs = [pair for pair in get_study(name).comparisons if pair.differences]
    assert len(pairs) == 1
    for column in get_study(name).columns:
        difference = rows[pairs[0].row][column].value - rows[pairs[0].against][column].value
        assert difference == pytest.approx(pairs[0].differences[column].value, abs=1e-9), column


def test_tables_that_repeat_each_other_agree():
    """Table 9 repeats rows of table 1, tables 5 and 10 rows of table 2."""

    def values(name, label):
        row = next(row for row in get_study(name).rows if row.label == label)
        return [cell.printed.value for cell in row.cells.values()]

    for label in ("RSDA", "RSDA + ASR-Norm"):
        assert values("table1", label) == values("table9", label)
    assert values("table2", "ADA") == values("table5", "ADA + BN") == values("fig-levels", "ADA + BN")
    for name in ("table5", "table10", "fig-levels", "fig-lambda-cifar"):
        assert values(name, "ADA + ASR-Norm") == values("table2", "ADA + ASR-Norm")
    for label in ("ADA + SN (IN, LN)", "ADA + AR", "ADA + AS"):
        assert values("table5", label) == values("table10", label)
    for label in ("ERM + ASR-Norm", "M-ADA"):
        assert values("table2", label) == values("table10", label)
    assert values("table2", "ERM") == values("table10", "ERM + BN")
    assert values("table3", "RSC + ASR-Norm") == values("fig-tsne", "RSC + ASR-Norm")
    last = get_study("table8").rows[-1].cells["Avg."].printed.value
    assert last == values("table3", "RSC + ASR-Norm")[-1]
    assert get_study("table8").rows[0].cells["Avg."].printed.value == values("table3", "RSC")[-1]


def test_the_shared_deviations_of_table_10_are_marked():
    rows = {row.label: row.cells for row in get_study("table10").rows}
    ours, sn = rows["ADA + ASR-Norm"], rows["ADA + SN (IN, LN)"]
    levels = [column for column in ours if column != "Avg."]
    assert [ours[c].printed.deviation for c in levels] == [sn[c].printed.deviation for c in levels]
    assert all("digit for digit" in sn[column].printed.note for column in levels)


def test_p_values_against_the_method_are_marked():
    marked = {
        (pair.against, column)
        for pair in get_study("table9").comparisons
        for column, printed in pair.printed.items()
        if printed.note
    }
    assert marked == {
        ("RSDA", "MNIST-M"),
        ("RSDA", "USPS"),
        ("RSDA + AS", "MNIST-M"),
        ("RSDA + AR", "USPS"),
    }


def test_copied_rows_name_their_source():
    def sources(name):
        printed = {row.label: row.cells["Avg."].printed for row in get_study(name).rows}
        return {label: number.copied_from for label, number in printed.items() if number}

    assert sources("table1") == {
        **dict.fromkeys(("ERM", "CCSA", "d-SNE", "JiGen", "ADA", "M-ADA"), "M-ADA"),
        "ME-ADA": "ME-ADA",
        "RSDA": "RSDA",
        "RSDA + ASR-Norm": None,
    }
    assert {label for label, source in sources("table2").items() if source is None} == {
        *("PGD", "ERM + ASR-Norm", "ADA + ASR-Norm")
    }
    assert {label for label, source in sources("table4").items() if source is None} == {"RSC + ASR-Norm"}


def test_a_line_needs_a_word_for_every_column():
    with pytest.raises(ValueError, match="zip"):
        transcribe(["A", "B"], "1.0")
