"""Table 8: the networks of its rows have the parameters that the paper prints."""

import pytest

import asrnorm
from asrnorm.studies import get_study
from asrnorm.studies.complexity import ALL, BASE

# Parameters with the two gates a layer that section 4.1 adds on PACS.
NUM_PARAMETERS = {
    "BN": BASE,
    "ASR to the first norm layer (C/2, C/16)": 11_187_275,
    "ASR to selected 4 norm layers (C/2, C/16)": 11_796_571,
    "ASR to all norm layers (C/16, C/16)": 11_637_111,
    "ASR to all norm layers (C/8, C/16)": 11_832_951,
    ALL: 13_007_991,
}
KNOWN = (11_187_273, 11_796_561, 11_637_087, 11_832_927, 13_007_967)  # without the gates
STUDY = get_study("table8")


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("row", STUDY.rows, ids=lambda row: row.label)
def test_rows_have_the_printed_number_of_parameters(row):
    config = row.cells["# Params"].runs[0].config(0, "paper")
    model = asrnorm.create_model(config.model.name, num_classes=7)
    assert count(model) == BASE
    if config.norm.name != "bn":
        assert config.norm.args["gated_rescale"]
        asrnorm.convert(model, config.norm.name, layers=config.layers, **config.norm.args)
    assert count(model) == NUM_PARAMETERS[row.label]
    assert round(count(model) / 1e6, 2) == row.cells["# Params"].printed.value
    percent = 100 * (count(model) - BASE) / BASE
    printed = row.cells["Params ↑"].printed
    assert (round(percent, 1) == printed.value) != bool(printed.note)


def test_the_footnote_has_the_counts_without_gates():
    note = next(note for note in STUDY.footnotes if "two gates" in note)
    gates = (1, 5, 12, 12, 12)
    with_gates = list(NUM_PARAMETERS.values())[1:]
    assert [total - 2 * layers for total, layers in zip(with_gates, gates, strict=True)] == list(KNOWN)
    assert all(f"{number:,}" in note for number in KNOWN)
