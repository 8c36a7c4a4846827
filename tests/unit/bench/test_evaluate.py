import pytest
import torch
from torch import nn

from asrnorm.bench import evaluate
from asrnorm.bench.evaluate import ALL_IMAGES, Counter, Share, run


class Brightest(nn.Module):
    """Answers with the brightest channel."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x.mean((2, 3)) * self.scale


def test_right_answers_are_counted_over_whole_batches():
    images = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    labels = torch.arange(10) % 3
    images[torch.arange(10), labels] = 200
    labels[1] = 2  # one wrong
    counter = Counter(Brightest(), 4, cuda=False)
    assert int(counter.count(images, labels)) == 7
    assert int(counter.count(images, labels)) == 7


def test_a_share_is_scaled_to_all_images():
    (rows,) = run(quick=True)
    assert [row.path.split(",")[0] for row in rows] == ["bn", "bn", "asr", "asr"]
    for row in rows:
        assert row.extra["seconds"] == pytest.approx(ALL_IMAGES / row.per_second)
        assert row.extra["scaled"]


def test_every_row_names_the_images_that_it_was_timed_on(monkeypatch):
    monkeypatch.setattr(evaluate, "QUICK", Share(7, 4, "wrn_16_4"))
    (rows,) = run(repeats=1)
    assert [row.extra["measured_images"] for row in rows] == [4, 7, 4, 7]


@pytest.mark.gpu
def test_a_captured_batch_counts_as_an_eager_one():
    model = Brightest().cuda().eval()
    images = torch.randint(256, (16, 3, 32, 32), dtype=torch.uint8, device="cuda")
    labels = images.float().mean((2, 3)).argmax(1)
    assert int(Counter(model, 4, cuda=True).count(images, labels)) == 16
