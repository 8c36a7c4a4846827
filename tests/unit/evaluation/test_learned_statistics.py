"""The lambdas of every layer, and the learned statistics of every image."""

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm import ops
from asrnorm.core.errors import InputError
from asrnorm.evaluation import learned_statistics
from asrnorm.evaluation.learned_statistics import collect_lambdas
from asrnorm.evaluation.score import subsample
from asrnorm.models import create_model
from asrnorm.norms import ASRNorm2d, create_norm
from helpers.toy_suite import ToySuite


def test_every_asr_layer_is_found_by_its_name():
    model = create_model("wrn_16_4", norm="asr")
    found = collect_lambdas(model)
    assert set(found) == {name for name, module in model.named_modules() if isinstance(module, ASRNorm2d)}
    assert all(set(values) == {"lambda_mu", "lambda_sigma"} for values in found.values())
    assert all(value == pytest.approx(0.04743, abs=1e-5) for values in found.values() for value in values.values())


def test_per_channel_lambdas_are_averaged_and_gates_included():
    layer = ASRNorm2d(4, per_channel_lambda=True, gated_rescale=True)
    with torch.no_grad():
        layer.lambda_mu.copy_(torch.tensor([-20.0, -20.0, 20.0, 20.0]))
    found = collect_lambdas(nn.ModuleDict({"norm": layer}))["norm"]
    assert found["lambda_mu"] == pytest.approx(0.5, abs=1e-6)
    assert found["lambda_gamma"] == pytest.approx(torch.tensor(-5.0).sigmoid().item())
    assert set(found) == {"lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma"}


def test_other_networks_have_none():
    assert collect_lambdas(create_model("digits_convnet", norm="bn")) == {}


class TwoNorms(nn.Module):
    """The norm that is met last is made first."""

    def __init__(self, norm="asr", **options):
        super().__init__()
        self.late = create_norm(norm, 6, **options)
        self.middle = create_norm(norm, 5)
        self.early = create_norm(norm, 4, **options)
        self.one, self.two, self.three = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Conv2d(5, 6, 3)

    def forward(self, x):
        x = self.two(self.early(self.one(x)).relu())
        return self.late(self.three(self.middle(x))).mean((2, 3))


def direct(layer, x):
    """The paper's equations on all images at once."""
    return ops.learned_standardization(*ops.channel_stats(x, layer.eps), layer.standardize_nets())


@pytest.mark.parametrize("norm", ["asr", "as"])
def test_the_arrays_are_what_the_equations_give(norm):
    model, suite = TwoNorms(norm), ToySuite(targets=("bright", "absent", "dark"), count=30)
    arrays = learned_statistics(model, suite, per_domain=12, batch_size=5)
    assert set(arrays) == {"domain", "mu_first", "sigma_first", "mu_last", "sigma_last"}
    names, counts = np.unique(arrays["domain"], return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {"home": 12, "bright": 12, "dark": 12}
    assert arrays["domain"][0] == "home"
    data = {"home": suite.source_test, "bright": suite.targets["bright"], "dark": suite.targets["dark"]}
    for name, images in data.items():
        x = torch.from_numpy(subsample(images, 12).images).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            first = model.one(x)
            last = model.three(model.middle(model.two(model.early(first).relu())))
            wanted = {"first": direct(model.early, first), "last": direct(model.late, last)}
        for part, pair in wanted.items():
            for symbol, value in zip(("mu", "sigma"), pair, strict=True):
                found = arrays[f"{symbol}_{part}"][arrays["domain"] == name]
                # Batches go round the set, so that the images come in another order.
                order = [row for batch in range(3) for row in range(batch, 12, 3)]
                np.testing.assert_allclose(found, value[order].numpy(), rtol=1e-5, atol=1e-6)


def test_running_statistics_are_mixed_in_where_the_layer_does_so():
    model, suite = TwoNorms(statistics="batch"), ToySuite(count=8)
    with torch.no_grad():
        model.early.running_mean.fill_(9.0)
        model.early.lambda_mu.fill_(-50.0)  # the learned part is off
    arrays = learned_statistics(model, suite)
    np.testing.assert_allclose(arrays["mu_first"], 9.0, rtol=1e-6)
    assert float(model.early.running_mean.min()) == 9.0  # looking changes nothing
    assert model.training


def test_nothing_is_pickled(tmp_path):
    np.savez(tmp_path / "a.npz", **learned_statistics(TwoNorms(), ToySuite(count=8)))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["mu_last"].dtype == np.float32
        assert arrays["domain"].dtype.kind == "U"


@pytest.mark.parametrize("norm", ["ar", "bn"])
def test_a_network_that_learns_no_standardization_is_refused(norm):
    with pytest.raises(InputError):
        learned_statistics(TwoNorms(norm), ToySuite(count=8))


def test_all_images_where_a_domain_has_fewer():
    assert len(learned_statistics(TwoNorms(), ToySuite(count=7))["domain"]) == 21
