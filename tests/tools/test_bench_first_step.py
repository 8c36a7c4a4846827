import json

from tools.bench_first_step import main


def test_first_steps_are_compared_with_batch_norms(tmp_path):
    main(["--quick", "--device", "cpu", "--json", str(tmp_path / "first.json")])
    rows = json.loads((tmp_path / "first.json").read_text())["rows"]
    assert [row["path"] for row in rows] == ["bn", "asr, empty cache", "asr, filled cache"]
    assert rows[0]["extra"]["more_s"] == 0.0
    assert all(row["extra"]["ms"] > 0 for row in rows)
