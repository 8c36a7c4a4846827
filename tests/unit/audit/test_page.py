"""The page holds every part, asks nobody for anything, and escapes what users name."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from asrnorm.audit import AuditedModule, Plan, read_images, run_audit, write_audit
from asrnorm.audit.chart import Line, curves, reliability
from asrnorm.audit.page import corruption_table, shade
from asrnorm.audit.paired import pack
from asrnorm.audit.result import Scores
from asrnorm.audit.summary import compare, warnings
from helpers.audited import ColorNet, make_folder

PLAN = Plan(severities=(1, 5), corruptions=("fog", "saturate", "frost"), fgsm=(8,), pgd=(8,), candidates=4)
OUTPUTS = {"blue": 0, "green": 1, "red": 2}
HEADINGS = (
    "Corruptions",
    "Does it know when it is wrong?",
    "Attacks",
    "The changes that hurt most",
    "What broke",
    "How it was measured",
)


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    return read_images(make_folder(tmp_path / "data"), (32, 32))


def make_model(name, gradients=True, sharpness=8.0):
    made = AuditedModule(name, ColorNet(sharpness))
    made.probe((32, 32))
    made.no_gradients = "" if gradients else "the file has no gradients"
    return made


def write(tmp_path, images, *models, **options):
    audit = run_audit(models, images, [OUTPUTS] * len(models), PLAN, workers=1, progress=False, **options)
    page, numbers = write_audit(audit, images, tmp_path / "out")
    return page.read_text(), json.loads(numbers.read_text()), audit


def test_every_part_is_there_and_nothing_comes_from_elsewhere(tmp_path, images):
    text, _, audit = write(tmp_path, images, make_model("a <net>"))
    assert all(f"<h2>{heading}</h2>" in text for heading in HEADINGS)
    assert all(target.startswith("data:") for target in re.findall(r'(?:src|href)="([^"]*)', text))
    assert "<script" not in text
    assert "url(" not in text
    assert "a &lt;net&gt;" in text
    assert "<net>" not in text
    assert "frost is not available: frost needs six photographs" in text
    worst = min(reading.accuracy for levels in audit.models[0].corruptions.values() for reading in levels.values())
    assert f"{100 * worst:.1f} % at worst" in text
    assert [file.name for file in (tmp_path / "out").iterdir() if file.name.startswith(".")] == []


def test_the_page_and_the_file_say_if_images_were_corrupted_as_tensors(tmp_path, images):
    text, values, _ = write(tmp_path, images, make_model("net"), tensors=True)
    assert "corrupted as tensors" in text
    assert values["tensors"] is True
    text, values, _ = write(tmp_path, images, make_model("net"))
    assert "corrupted as tensors" not in text
    assert "tensors" not in values


def test_the_numbers_are_all_in_the_file(tmp_path, images):
    _, values, audit = write(tmp_path, images, make_model("net"))
    assert values["schema"] == 1
    model = values["models"][0]
    assert model["clean"]["accuracy"] == 1.0
    assert model["corruptions"]["fog"]["5"]["ece"] == audit.models[0].corruptions["fog"][5].ece
    assert model["attacks"] == audit.models[0].attacks
    levels = [audit.models[0].corruptions[name][5].accuracy for name in ("fog", "saturate")]
    assert model["mean_corruption"]["5"]["accuracy"] == pytest.approx(sum(levels) / 2)
    assert model["search"]["operations"]
    assert values["not_available"].keys() == {"frost"}


def test_two_models_stand_side_by_side_and_one_may_lack_gradients(tmp_path, images):
    text, values, audit = write(tmp_path, images, make_model("one"), make_model("two", gradients=False, sharpness=0.1))
    assert len(values["models"]) == 2
    assert "two: not available: the file has no gradients." in text
    rows = re.findall(r'<td class="who"><i class="key c(\d)"></i><span>(\w+)</span></td>', text)
    assert rows.count(("0", "one")) == rows.count(("1", "two")) > 2
    assert f"of {2 * len(audit.severities)} corrupted versions" in text
    for panel in re.findall(r"<h4>fog</h4>(<svg.*?</svg>)", text):
        assert panel.count("<polyline") == 2


def test_a_model_that_guesses_is_warned_about(tmp_path, images):
    made = make_model("net")
    made.module.network.fc.weight.data *= -1
    text, _, _ = write(tmp_path, images, made)
    assert "close to guessing: check --classes, --mean, --std" in text


def test_a_model_of_more_classes_than_there_are_folders_does_not_guess(tmp_path, images):
    _, _, audit = write(tmp_path, images, make_model("net"))
    right = replace(audit.models[0], num_classes=1000, clean=replace(audit.models[0].clean, accuracy=0.6))
    two = replace(audit, classes=audit.classes[:2], not_available={})
    assert not warnings(replace(two, models=(right,)))
    of_two = replace(right, num_classes=2)
    assert "close to guessing" in warnings(replace(two, models=(of_two,)))[0]
    better = replace(of_two, clean=replace(of_two.clean, accuracy=0.75))
    assert not warnings(replace(two, models=(better,))), "three of four, of two classes"


def test_the_page_says_how_many_corruptions_were_made(tmp_path, images):
    text, _, _ = write(tmp_path, images, make_model("net"))
    assert "<li>2 of the 3 corruptions of CIFAR-10-C and ImageNet-C" in text


def reading(num_right, count=100):
    scores = {"accuracy": num_right / count, "brier": 0.1, "brier_sum": 0.2, "nll": 1.0, "ece": 0.1}
    return Scores(**scores, num_samples=count, bins=[[10, 5, 0.5]], right=pack(torch.arange(count) < num_right))


def make_audit(audit, **corrupted):
    """The numbers of an audit with other right images, out of a hundred, by model and severity."""
    models = [
        replace(
            audit.models[0],
            name=name,
            clean=reading(90),
            corruptions={"fog": {level: reading(count) for level, count in enumerate(counts, 1)}},
        )
        for name, counts in corrupted.items()
    ]
    return replace(audit, models=tuple(models), num_images=100, severities=tuple(models[0].corruptions["fog"]))


def test_a_difference_within_its_interval_is_neither_ahead_nor_behind(tmp_path, images):
    _, _, audit = write(tmp_path, images, make_model("net"))
    both = make_audit(audit, a=(50, 52, 75, 26), b=(50, 50, 50, 50))
    assert compare(both) == (
        "Under corruption a is 0.8 points ahead of b on average (95 % interval -3.1 to 4.6); "
        "of 4 corrupted versions it is clearly ahead on 1 and clearly behind on 1."
    )
    assert compare(make_audit(audit, a=(50,))) == ""


def test_a_cell_is_shaded_only_beyond_the_interval_of_its_difference_to_clean(tmp_path, images):
    _, _, audit = write(tmp_path, images, make_model("net"))
    (_, entries, _), _ = corruption_table(make_audit(audit, a=(90, 88, 80)))
    cells = entries[0][2][0]["cells"]
    assert [value for value, _ in cells] == pytest.approx([0.9, 0.88, 0.8, 0.86])
    assert [shaded > 0 for _, shaded in cells] == [False, False, True, True]


def test_a_cell_is_shaded_by_the_part_of_the_clean_accuracy_that_is_lost():
    assert shade(0.1, 0.5) == pytest.approx(shade(0.2, 1.0)) == pytest.approx(0.44)
    assert shade(0.0, 0.5) == 0.55
    assert shade(0.6, 0.5) == shade(None, 0.5) == 0.0


def test_a_curve_goes_through_its_values_and_leaves_out_what_is_missing():
    ((color, dashed, points),) = curves([Line("a & b", [1.0, None, 0.0], 1)], ["clean", "1", "2"], "x").lines
    assert (color, dashed) == (1, False)
    assert points[0][1] < points[1][1]  # SVG counts from the top
    assert [said for _, _, said in points] == ["a & b, clean: 100.0 %", "a & b, 2: 0.0 %"]


def test_ticks_stand_at_their_positions():
    chart = curves([Line("a", [1.0, 1.0, 1.0])], ["0", "1", "5"], "x", positions=(0, 1, 5))
    first, second, third = (x for x, _, _ in chart.lines[0][2])
    assert (third - first) == pytest.approx(5 * (second - first))


def test_bars_stand_where_their_bin_is_and_as_high_as_it_is_right():
    bars = reliability([[0, 0, 0.0], [4, 4, 0.6], [2, 1, 0.9]], "x").bars
    assert len(bars) == 2
    assert bars[0][0] < bars[1][0]
    assert bars[0][3] == pytest.approx(2 * bars[1][3])
    assert bars[0][4] > bars[1][4], "the fuller bin has the fuller color"


HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def test_every_name_is_escaped_wherever_it_is_shown(tmp_path, images):
    harmless, _, audit = write(tmp_path, images, make_model("one"), make_model("two", gradients=False))
    hostile = tuple(
        replace(
            model,
            name=f"{HOSTILE}{index}",
            kind=HOSTILE,
            input=HOSTILE,
            fingerprint=HOSTILE,
            no_attacks=model.no_attacks and HOSTILE,
            classes=dict.fromkeys(model.classes, HOSTILE),
            search=replace(
                model.search,
                operations=[(HOSTILE, 1.0)],
                accuracy={f"{HOSTILE}{other}": 0.5 for other in range(2)},
            ),
        )
        for index, model in enumerate(audit.models)
    )
    audit = replace(audit, models=hostile, data=HOSTILE, skipped=(HOSTILE,), not_available={"frost": HOSTILE})
    images = replace(images, classes=(HOSTILE,) * 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asrnorm.audit.page.apply_operations", lambda image, _: image)
        page, _ = write_audit(audit, images, tmp_path / "hostile")
    text = page.read_text()
    assert "onerror" in text
    assert tags(text) == tags(harmless), "names add no tag and no attribute"


def tags(text):
    """Return the tags of a page, each with the names of its attributes."""

    class Collector(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.add((tag, *sorted(name for name, _ in attributes)))

    found = set()
    Collector().feed(text)
    return found
