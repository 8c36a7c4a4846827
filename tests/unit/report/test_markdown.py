import json

from asrnorm.report.markdown import rewrite


def result(recipe, accuracy, seed):
    domain = {"name": "uci", "accuracy": accuracy}
    return {
        "recipe": recipe,
        "seed": seed,
        "scale": "paper",
        "selection": "last",
        "commit": "abc",
        "steps": 800,
        "source": {"name": "mnist", "accuracy": 0.9},
        "domains": [domain],
        "average_accuracy": accuracy,
    }


def test_a_block_is_written_from_its_file_and_the_rest_is_left_alone(tmp_path):
    rows = [result("a", 0.5, 0), result("a", 0.6, 1), result("b", 0.7, 0)]
    (tmp_path / "kept.jsonl").write_text("\n".join(map(json.dumps, rows)))
    page = "before\n<!-- results: kept.jsonl -->\nold\n<!-- end results -->\nafter"
    text = rewrite(page, tmp_path)
    assert text.startswith("before\n<!-- results: kept.jsonl -->\n| recipe | n |")
    assert "| `a` | 2 | 90.0 ± 0.0 | 55.0 ± 7.1 | 55.0 ± 7.1 |" in text
    assert "| `b` | 1 | 90.0 | 70.0 | 70.0 |" in text
    assert "old" not in text
    assert text.endswith("<!-- end results -->\nafter")
    assert rewrite(text, tmp_path) == text
