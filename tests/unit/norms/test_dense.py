"""The linear layers inside norms keep what hangs on them, or are refused."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import asrnorm
from asrnorm.core.errors import InputTypeError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
X = torch.randn(4, 8, 5, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("norm", "part"), [("asr", "stan_encoder"), ("ilm", "encoder")])
def test_a_pruned_weight_is_trained_through_its_mask(norm, part):
    layer = asrnorm.create_norm(norm, 8)
    linear = getattr(layer, part)
    prune.l1_unstructured(linear, "weight", 0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    before = layer(X)
    for _ in range(2):  # a second backward goes through the weight of the second forward
        optimizer.zero_grad()
        (layer(X) * torch.linspace(0, 1, 5)).sum().backward()
        optimizer.step()
    assert not torch.allclose(layer(X), before)
    assert torch.equal(linear.weight, linear.weight_orig * linear.weight_mask)


def test_spectral_and_weight_norm_are_in_force():
    layer = asrnorm.create_norm("asr", 8).train()
    with torch.no_grad():
        layer.mu_decoder.weight.mul_(20)
    nn.utils.spectral_norm(layer.mu_decoder)
    for _ in range(30):
        layer(X)
    assert float(torch.linalg.matrix_norm(layer.mu_decoder.weight.detach(), 2)) == pytest.approx(1, abs=0.05)
    nn.utils.weight_norm(layer.sigma_decoder)
    with torch.no_grad():
        layer.sigma_decoder.weight_g.mul_(3)
    before = float(layer.sigma_decoder.weight.detach().norm())
    layer(X)
    assert float(layer.sigma_decoder.weight.detach().norm()) == pytest.approx(3 * before, rel=1e-5)


def test_a_parametrized_weight_is_taken():
    layer = asrnorm.create_norm("asr", 8)
    before = layer(X)
    parametrizations.weight_norm(layer.mu_decoder)
    torch.testing.assert_close(layer(X), before)


class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize("other", [Adapted(8, 4), nn.Sequential(nn.Linear(8, 4))])
def test_what_would_be_passed_by_is_refused(other):
    layer = asrnorm.create_norm("asr", 8)
    layer.stan_encoder = other
    with pytest.raises(InputTypeError, match=f"must be torch.nn.Linear layers, not {type(other).__name__}"):
        layer(X)
