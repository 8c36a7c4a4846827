import pytest
import torch
from torch import nn

from asrnorm.bench.device import peak_bytes, saved_bytes


def test_what_autograd_keeps_is_counted_once_a_memory():
    x = torch.ones(10, 10, requires_grad=True)
    linear = nn.Linear(10, 10)
    assert saved_bytes(lambda: linear(x), kept=tuple(linear.parameters())) == 400  # x alone
    assert saved_bytes(lambda: x * x, kept=(x,)) == 0
    assert saved_bytes(lambda: x.exp() * x.exp(), kept=(x,)) == 800


def test_nothing_counts_the_peak_on_a_cpu():
    assert peak_bytes(lambda: None, torch.device("cpu")) is None


@pytest.mark.gpu
def test_the_peak_is_what_lives_at_most_beyond_what_lived_before():
    kept = torch.ones(1 << 20, device="cuda")
    assert peak_bytes(lambda: (kept + 1) * 2, kept.device) == 2 * 4 << 20
