"""Batch-instance normalization."""

import torch
from torch import nn

from asrnorm.norms import BatchInstanceNorm

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


def test_bin_starts_as_batch_norm_and_ends_as_instance_norm():
    layer = BatchInstanceNorm(8)
    torch.testing.assert_close(layer(X), nn.BatchNorm2d(8)(X), rtol=1e-4, atol=1e-5)
    nn.init.zeros_(layer.gate)
    torch.testing.assert_close(layer(X), nn.InstanceNorm2d(8)(X), rtol=1e-4, atol=1e-5)


def test_bin_gates_are_clamped_and_can_come_back():
    layer = BatchInstanceNorm(8)
    optimizer = torch.optim.SGD([layer.gate], lr=1.0)
    with torch.no_grad():
        layer.gate.fill_(3.0)
    layer.eval()
    torch.testing.assert_close(layer(X), BatchInstanceNorm(8).eval()(X))  # 3 counts as 1
    layer.train()
    (layer(X) * nn.InstanceNorm2d(8)(X)).sum().neg().backward()
    assert layer.gate.max() == 1.0
    assert (layer.gate.grad != 0).all()  # a gate at its bound still learns
    optimizer.step()
    layer(X)
    assert ((layer.gate >= 0) & (layer.gate <= 1)).all()


def test_a_penalty_on_the_gate_may_be_taken_before_the_forward():
    layer = BatchInstanceNorm(8)
    penalty = layer.gate.square().sum()
    (layer(X).square().sum() + penalty).backward()
    assert layer.gate.grad.isfinite().all()
