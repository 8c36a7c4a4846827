import os
from dataclasses import asdict

import pytest
import torch

from asrnorm.bench import train
from asrnorm.bench.column import COLUMNS
from asrnorm.bench.train import EAGER, TRAINER, Mark, joint_step, run, windows
from asrnorm.core.errors import UnknownNameError
from helpers.fake_mps import FakeMps


def test_digits_are_scaled_to_a_million_steps_and_say_so():
    (rows,) = run(quick=True, only=["digits"], made=True)
    assert [row.path for row in rows] == [EAGER, TRAINER]
    for row in rows:
        assert row.extra["seconds"] == pytest.approx(1_000_000 / row.per_second)
        assert row.extra["scaled"]
        assert row.extra["images"] == "made"
        assert row.p20 <= row.per_second <= row.p80
    assert rows[1].extra["measured_grows"] == 2
    assert rows[1].extra["times_baseline"] == pytest.approx(rows[1].extra["seconds"] / rows[0].extra["seconds"])


def test_an_ascent_is_scaled_to_all_images(monkeypatch):
    seconds = {0: 0.0, 100: 50.0, 200: 60.0, 300: 200.0, 400: 210.0, 500: 252.0, 600: 262.0}
    marks = [Mark(step, at) for step, at in seconds.items()]
    monkeypatch.setattr(train, "time_loop", lambda *_, **__: marks)
    monkeypatch.setattr(train, "find_images", lambda *_: (None, "made"))
    (rows,) = run(only=["cifar"])
    ascent = 32.0 * 50_000 / 6_400  # the second one: the first pays for what is compiled
    assert rows[0].extra["grow_seconds"] == pytest.approx(ascent)
    assert rows[1].extra["seconds"] == pytest.approx(0.1 * 78_200 + 3 * ascent)
    assert [row.path for row in rows] == ["ADA+BN", "ADA+ASR"]


def test_a_short_loop_is_measured_whole(monkeypatch):
    monkeypatch.setattr(train, "time_loop", lambda *_, **__: [Mark(0, 1.0), Mark(330, 12.0)])
    monkeypatch.setattr(train, "find_images", lambda *_: (None, "made"))
    (rows,) = run(only=["pacs-photo"])
    assert rows[1].extra["seconds"] == pytest.approx(11.0)
    assert not rows[1].extra["scaled"]
    assert rows[1].extra["steps"] == 330


@pytest.mark.slow
def test_seeds_side_by_side_are_processes_of_their_own():
    (rows,) = run(quick=True, only=["digits"], processes=2, made=True)
    assert rows[2].path == "trainer, 2 seeds side by side"
    assert rows[2].extra["seeds"] == 2
    assert rows[2].extra["seconds"] == pytest.approx(1_000_000 / rows[2].per_second)


class FakePool:
    """Notes the environment that processes started now would have."""

    def __init__(self, seen):
        self._seen = seen

    def get_context(self, _):
        return self

    def Pool(self, _):  # noqa: N802
        self._seen.append(dict(os.environ))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def starmap(self, _, tasks, chunksize):  # noqa: ARG002
        self._seen.append([settings.device for _, settings in tasks])
        return [[Mark(0, 0.0), Mark(52_000, 52.0)] for _ in tasks]

    close = join = lambda self: None


@pytest.mark.parametrize(("off", "sharing"), [("", "MPS"), ("0", "time slices")])
def test_seeds_side_by_side_share_the_gpu_and_the_row_says_how(monkeypatch, tmp_path, off, sharing):
    fake, seen = FakeMps(tmp_path, monkeypatch), []
    monkeypatch.setenv("ASRNORM_MPS", off)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(train, "require", torch.device)
    monkeypatch.setattr(train, "find_images", lambda *_: (None, "made"))
    marks = [Mark(step, step / 1000) for step in range(0, 53_000, 1000)]
    monkeypatch.setattr(train, "time_loop", lambda *_, **__: marks)
    monkeypatch.setattr(train, "multiprocessing", FakePool(seen))
    before = dict(os.environ)
    (rows,) = run("cuda:1", only=["digits"], processes=5)
    assert os.environ == before
    assert rows[2].extra["sharing"] == sharing
    assert "sharing" not in rows[1].extra
    assert COLUMNS["train"][-1].show(asdict(rows[2])).endswith(f"generated images; GPU shared by {sharing}")
    environment, devices = seen
    if off:
        assert environment == before
        assert devices == [torch.device("cuda:1")] * 5
        assert fake.calls() == []
    else:
        assert environment["CUDA_MPS_PIPE_DIRECTORY"] in fake.calls()[0]
        assert fake.calls()[0].endswith(" 5")
        assert environment["CUDA_VISIBLE_DEVICES"] == "0"
        assert devices == [torch.device("cuda")] * 5
        assert fake.calls()[1:] == ["quit -t 5"]


def test_processes_that_never_met_are_timed_alone():
    early = [Mark(0, 0.0), Mark(10, 10.0)]
    late = [Mark(0, 20.0), Mark(10, 50.0)]
    assert joint_step([early, late], 0) == 3.0


def test_the_first_stretches_are_left_out():
    marks = [Mark(step, float(step**2)) for step in range(0, 9, 2)]
    assert windows([*marks, Mark(8, 99.0)], 4, skip=1) == [48.0]


def test_an_unknown_training_is_named():
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        next(run(only=["digit"]))
