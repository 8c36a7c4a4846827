import json

import pytest

from asrnorm.bench import eager, step, train
from asrnorm.bench.column import COLUMNS
from asrnorm.bench.layer import GPU_SHAPES
from tools import bench_first_step
from tools.bench_targets import TARGETS, measured, render_targets

WAYS = ("training step", "evaluation, batch 128", "evaluation, batch 1")


def row(work, path, **extra):
    return {"work": work, "path": path, "extra": extra}


def lines_of(results, rows, suite="train"):
    (results / f"{suite}-part--h200.json").write_text(json.dumps({"suite": suite, "rows": rows}))
    return render_targets(results, "h200").splitlines()


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(250.0, "met, and the aim"), (400.0, "met"), (750.0, "missed by 50.0%")]
)
def test_a_target_is_met_or_missed(tmp_path, seconds, verdict):
    work = "Digits RSDA+ASR, 1,000,000 steps"
    rows = [row(work, "trainer", seconds=seconds), row(work, "trainer, 5 seeds side by side", seconds=100.0)]
    lines = lines_of(tmp_path, rows)
    one = next(line for line in lines if "one seed" in line)
    assert one.endswith(f"| {seconds:,.1f} | {verdict} |")


def test_what_was_not_measured_is_shown(tmp_path):
    first, _, *lines = render_targets(tmp_path, "h200").splitlines()
    assert first == f"None of the {len(TARGETS)} targets has been measured yet."
    assert len(lines) == 2 + len(TARGETS)
    assert all(line.endswith("| not yet |  |") for line in lines[2:])


def test_the_first_line_counts_what_is_met_and_what_is_left(tmp_path):
    work = "Digits RSDA+ASR, 1,000,000 steps"
    rows = [row(work, "trainer", seconds=400.0), row(work, "trainer, 5 seeds side by side", seconds=9000.0)]
    assert (
        lines_of(tmp_path, rows)[0] == f"1 of 2 measured targets are met; {len(TARGETS) - 2} are still to be measured."
    )


def test_the_worst_layout_of_the_best_way_counts():
    target = next(target for target in TARGETS if target.value == "times_floor")
    rows = [row(shape.label, "asr, fused", times_floor=1.5 + i) for i, shape in enumerate(GPU_SHAPES[:2])]
    rows += [row(GPU_SHAPES[2].label, "asr, fused", times_floor=9.0), row(GPU_SHAPES[0].label, "bn", times_floor=0.1)]
    assert measured(target, rows) == 2.5


def test_the_words_are_those_of_the_measurements():
    works = {f"training step, {net.label}" for net in step.GPU_NETS}
    works |= {f"forward in evaluation, {step.GPU_NETS[0].label}", *(shape.label for shape in GPU_SHAPES)}
    works |= {eager.LAYER, bench_first_step.WORK, f"{eager.COMPILED}, {eager.NETS[1].label}"}
    works |= {f"eager {what}, {net.label}" for net in eager.NETS for what in WAYS}
    for target in TARGETS:
        assert target.suite in COLUMNS
        if target.suite in ("step", "layers", "eager"):
            assert any(work.startswith(target.work) for work in works), target
    paths = {target.path for target in TARGETS if target.work == "Digits RSDA+ASR"}
    assert paths == {train.TRAINER, f"{train.TRAINER}, 5 seeds side by side"}
