"""Studies in YAML: what a file may say, and one line on what is wrong with it."""

import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.studies import STUDIES, list_studies, load_study
from asrnorm.studies.loader import NOTES, SHARED_NOTES, TABLES, read_notes, transcribe

HEAD = "summary: Norms on small digits.\ntitle: Norms\ncaption: Accuracy.\n"
BODY = """\
columns:
  UCI: {domains: [uci]}
  Avg.: {}
rows:
  BN: {recipe: digits_mini.erm_bn, paper: 52.8±0.4 -}
  ASR: {recipe: digits_mini.erm_asr, overrides: {optim.weight_decay: 5e-4}}
comparisons:
  - {row: ASR, against: BN, differences: -1.2 <0.5}
"""


@pytest.fixture
def load(tmp_path):
    def load(text, head=HEAD, name="own.yaml"):
        path = tmp_path / name
        path.write_text(head + text, encoding="utf-8")
        return load_study(path)

    return load


def test_a_small_study_is_what_its_file_says(load):
    study = load(BODY)
    assert (study.name, study.columns, study.seeds) == ("own", ("UCI", "Avg."), 5)
    first, second = study.rows
    assert first.cells["UCI"].printed.deviation == 0.4
    assert first.cells["Avg."].printed is None
    assert first.cells["UCI"].measure.domains == ("uci",)
    assert second.cells["Avg."].runs[0].overrides == {"optim.weight_decay": 5e-4}
    (pair,) = study.comparisons
    assert (pair.differences["UCI"].value, pair.differences["Avg."].below) == (-1.2, True)


def test_a_block_gives_its_keys_to_its_rows_and_adds_up_overrides(load):
    study = load(
        "columns: digits\n"
        "rows:\n  A: {recipe: digits.erm_bn}\n"
        "blocks:\n"
        "  - group: with RSDA\n    recipe: digits.rsda_bn\n    overrides: {steps: 5, optim.lr: 0.1}\n"
        "    rows:\n      B: {}\n      C: {recipe: digits.rsda_in, overrides: {optim.lr: 0.2}}\n      D:\n"
    )
    runs = {row.label: row.cells["Avg."].runs[0] for row in study.rows}
    assert [run.recipe for run in runs.values()] == [
        "digits.erm_bn",
        *["digits.rsda_bn", "digits.rsda_in"],
        "digits.rsda_bn",
    ]
    assert (runs["B"].overrides, runs["C"].overrides) == ({"steps": 5, "optim.lr": 0.1}, {"steps": 5, "optim.lr": 0.2})
    assert [row.group for row in study.rows] == ["", *["with RSDA"] * 3]


def test_with_each_a_row_is_several_runs_and_a_column_takes_one_or_all(load):
    study = load(
        "each: {target: [photo, sketch]}\ncolumns:\n  Photo: {run: photo}\n  Avg.: {}\n"
        "rows:\n  A: {recipe: pacs.erm_bn}\n"
    )
    cells = study.rows[0].cells
    assert [run.options for run in cells["Photo"].runs] == [{"target": "photo"}]
    assert [run.options for run in cells["Avg."].runs] == [{"target": "photo"}, {"target": "sketch"}]


def test_with_two_options_in_each_a_row_is_every_combination(load):
    head = (
        "each: {fold: [values, structure], target: [photo, sketch]}\n"
        "columns: {Values: {run: values}, Photo: {run: photo}, Avg.: {}}\n"
    )
    rows = "rows:\n  R: {recipe: pacs.erm_bn, overrides: {steps: {photo: 3, sketch: 4}}}\n"
    cells = load(head + rows).rows[0].cells
    assert [(run.options["fold"], run.options["target"]) for run in cells["Avg."].runs] == [
        *(("values", "photo"), ("values", "sketch")),
        *(("structure", "photo"), ("structure", "sketch")),
    ]
    assert [run.config(0, "paper").fold for run in cells["Photo"].runs] == ["values", "structure"]
    assert [run.config(0, "paper").steps for run in cells["Values"].runs] == [3, 4]


def test_with_each_an_override_may_have_a_value_per_run(load):
    study = load(
        "each: {target: [photo, sketch]}\ncolumns: {Avg.: {}}\n"
        "rows:\n  A: {recipe: pacs.erm_bn, overrides: {steps: {photo: 3, sketch: 5}, optim.lr: 0.1}}\n"
    )
    runs = study.rows[0].cells["Avg."].runs
    assert [run.overrides for run in runs] == [{"steps": 3, "optim.lr": 0.1}, {"steps": 5, "optim.lr": 0.1}]


def test_a_measure_of_the_study_is_that_of_every_column(load):
    study = load("measure: {quantity: ece, better: lower}\ncolumns: digits\nrows:\n  A: {recipe: digits.erm_bn}\n")
    assert {(c.measure.quantity, c.measure.better) for c in study.rows[0].cells.values()} == {("ece", "lower")}


def test_a_row_that_is_not_run_has_the_printed_cells_alone(load):
    study = load('columns: digits\nrows:\n  A: {not_run: no public code, paper: "- 1.0 - - 2.0"}\n')
    assert list(study.rows[0].cells) == ["MNIST-M", "Avg."]
    assert study.rows[0].not_run == "not run: no public code"
    assert not any(cell.runs for cell in study.rows[0].cells.values())


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (
            ("recipe: digits_mini.erm_bn, ", "recpie: x, "),
            UnknownNameError,
            "row 'BN': unknown field 'recpie'; did you mean 'recipe'",
        ),
        (("52.8±0.4 -", "52.8"), InputError, "row 'BN': paper must be str"),
        (("52.8±0.4 -", "52.8 1 2"), InputError, "row 'BN': paper has 3 numbers for 2 columns"),
        (("52.8±0.4 -", "52.8 x"), InputError, "row 'BN': paper: 'x' is not a number"),
        (("52.8±0.4 -", "52.8 -, remarks: {Avg.: odd}"), UnknownNameError, "remark on unknown number 'Avg.'"),
        (("recipe: digits_mini.erm_bn, ", ""), InputError, "row 'BN' needs a recipe, or else not_run"),
        (("52.8±0.4 -", "52.8 -, not_run: why"), InputError, "row 'BN' needs a recipe, or else not_run"),
        (("against: BN", "against: BM"), UnknownNameError, "comparison 1: unknown row 'BM'; known: ASR, BN"),
        (("{row: ASR, ", "{"), InputError, "comparison 1: missing 1 required keyword-only argument: 'row'"),
        (("{domains: [uci]}", "{domain: [uci]}"), UnknownNameError, "column 'UCI': unknown field 'domain'"),
        (("{domains: [uci]}", "{domains: uci}"), InputError, "column 'UCI': domains must be a list"),
        (("{domains: [uci]}", "{quantity: acuracy}"), UnknownNameError, "did you mean 'accuracy'"),
        (("{domains: [uci]}", "{run: photo}"), UnknownNameError, "column 'UCI': unknown run 'photo'"),
        (("  ASR:", "  BN:"), InputError, "line 9 gives 'BN' a second time"),
        (("rows:", "blocks:\n  - rows: {BN: {recipe: x}}\nrows:"), InputError, "row 'BN' is there twice"),
        (
            ("{recipe: digits_mini.erm_asr,", "{evaluation: {name: x}, recipe: digits_mini.erm_asr,"),
            InputError,
            "'overrides'",
        ),
        (
            ("{recipe: digits_mini.erm_asr, overrides: {optim.weight_decay: 5e-4}}", "5"),
            InputError,
            "row 'ASR' must be a mapping",
        ),
        (("rows:", "each: {source: [[photo]]}\nrows:"), InputError, "each: source: ['photo'] is not a single value"),
        (("rows:", "each: {source: [{}]}\nrows:"), InputError, "each: source: {} is not a single value"),
        (("rows:", "each: {source: photo}\nrows:"), InputError, "each must be options of the recipe and their values"),
        (("rows:", "notes: none.md\nrows:"), InputError, "none.md: cannot be read"),
        (
            ("rows:", "blocks:\n  - {overrides: 5, rows: {A: {recipe: x}}}\nrows:"),
            InputError,
            "overrides must be a mapping",
        ),
        (("rows:", "blocks:\n  - {rows: 5}\nrows:"), InputError, "rows must be a mapping"),
        (("{domains: [uci]}", "uci"), InputError, "column 'UCI' must be a mapping"),
        (("rows:", "rows: ["), InputError, "not YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(load, change, kind, said):
    assert change[0] in BODY
    with pytest.raises(kind) as caught:
        load(BODY.replace(*change))
    assert said in str(caught.value)
    assert ".yaml" in str(caught.value) or "none.md" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("columns: digit\n", "unknown columns 'digit'; did you mean 'digits'"),
        ("columns: 5\n", "columns must be a name in columns.yaml or a mapping"),
        ("columns: digits\nrow: {}\n", "unknown field 'row'; did you mean 'rows'"),
        ("columns: digits\nrows: [1]\n", "rows must be a mapping"),
        ("columns: digits\nblocks: [1]\n", "blocks must be a mapping"),
        ("columns: digits\nseeds: many\n", "seeds must be int"),
    ],
)
def test_wrong_keys_of_a_study_are_one_line(load, text, said):
    with pytest.raises((InputError, UnknownNameError)) as caught:
        load(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "just words", "- a list", "\x00"])
def test_a_file_that_is_no_mapping_is_one_line(load, text):
    with pytest.raises(InputError, match=r"own\.yaml: not"):
        load(text, head="")


def test_a_title_is_needed(load):
    with pytest.raises(InputError, match="title"):
        load(BODY, head="summary: x\ncaption: y\n")


def test_notes_are_paragraphs_with_shared_sections_filled_in(tmp_path):
    (tmp_path / SHARED_NOTES).write_text("## seeds\n\nTwo seeds\neach.\n\n## scale\n\nShort.\n")
    (tmp_path / "own.md").write_text("First\nparagraph.\n\n{seeds}\n\n{scale} Then more.\n")
    assert read_notes(tmp_path / "own.md") == ("First paragraph.", "Two seeds each.", "Short. Then more.")
    (tmp_path / "own.md").write_text("{seed}\n")
    with pytest.raises(UnknownNameError, match=r"own.md: unknown section of shared.md 'seed'; did you mean 'seeds'"):
        read_notes(tmp_path / "own.md")


def test_notes_of_an_own_study_lie_beside_it(load, tmp_path):
    (tmp_path / "own.md").write_text("One seed.\n")
    assert load(f"{BODY}notes: own.md\n").footnotes == ("One seed.",)


def test_every_file_of_the_package_is_used():
    assert {path.stem for path in TABLES.iterdir()} == set(list_studies())
    notes = {path.stem for path in NOTES.iterdir()}
    assert notes - {"shared"} <= set(list_studies())
    used = "".join(path.read_text() for path in NOTES.iterdir())
    names = [line[3:] for line in (NOTES / SHARED_NOTES).read_text().splitlines() if line.startswith("## ")]
    assert all(used.count(f"{{{name}}}") > 1 for name in names), "a section of one study belongs into its own notes"


def test_the_summary_of_a_study_is_in_its_file():
    assert STUDIES.summary("table3") == "Table 3: PACS from one source domain to the other three."


def test_a_line_without_numbers_is_none_of_them():
    assert transcribe(["A", "B"], "") == {}
