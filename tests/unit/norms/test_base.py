"""Properties of all norms: agreement with PyTorch, reset, vmap, repr, input checks; and `none`."""

import numpy as np
import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import (
    NORMS,
    ASRNorm2d,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    NoNorm,
    NormLayer,
    create_norm,
)

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (BatchNorm(8), nn.BatchNorm2d(8)),
        (InstanceNorm(8), nn.InstanceNorm2d(8)),
        (GroupNorm(8, num_groups=2), nn.GroupNorm(2, 8)),
        (LayerNorm(8), nn.GroupNorm(1, 8)),
    ],
    ids=["bn", "in", "gn", "ln"],
)
def test_equal_to_pytorch(ours, theirs):
    for _ in range(2):
        torch.testing.assert_close(ours(X), theirs(X))
    torch.testing.assert_close(ours.eval()(X), theirs.eval()(X))


@pytest.mark.parametrize("name", sorted(NORMS))
def test_the_usual_loop_resets_every_parameter_and_statistic(name):
    torch.manual_seed(0)
    fresh, used = create_norm(name, 64), create_norm(name, 64)
    with torch.no_grad():
        for value in used.state_dict().values():
            value.fill_(3)
    for module in used.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for key, value in used.state_dict().items():
        drawn = fresh.state_dict()[key].unique().numel() > 1  # of a linear layer
        assert bool((value != 3).all()) if drawn else torch.equal(value, fresh.state_dict()[key]), key


@pytest.mark.parametrize("name", sorted(set(NORMS) - {"bn", "bn_test", "dsbn", "dson", "sn", "bin"}))
def test_mapped_over_another_axis(name):
    layer = create_norm(name, 4)
    x = torch.randn(3, 2, 4, 5, 5)
    torch.testing.assert_close(torch.vmap(layer)(x), torch.stack([layer(part) for part in x]))


@pytest.mark.parametrize("name", [name for name in NORMS if name not in ("dsbn", "dson")])
@pytest.mark.parametrize("count", [0, -1, 10**20, "8", 2.0, True])
def test_num_features_must_be_a_positive_integer(name, count):
    with pytest.raises(InputError if type(count) is int else InputTypeError):
        create_norm(name, count)


@pytest.mark.parametrize("name", [name for name in NORMS if "eps" in NORMS.options(name) and name != "none"])
@pytest.mark.parametrize("eps", [-1.0, float("nan")])
def test_eps_must_not_be_negative(name, eps):
    with pytest.raises(InputError):
        create_norm(name, 8, eps=eps)
    create_norm(name, 8, eps=0.0)


class _Own(NormLayer):
    def __init__(self, num_features, *, forgotten=1, kept=2, asked, bias=True, device=None, dtype=None):
        super().__init__()
        self.num_features, self.kept, self.asked, self.half = num_features, kept, asked, forgotten / 2
        self.bias = nn.Parameter(torch.zeros(num_features, device=device, dtype=dtype)) if bias else None


class _HandingOn(ASRNorm2d):
    def __init__(self, num_features, **options):
        super().__init__(num_features, eps=1e-3, **options)


def test_a_layer_of_ones_own_shows_the_options_that_it_keeps():
    assert str(_Own(8, forgotten=3, asked="x")) == "_Own(8, asked='x')"
    assert str(_Own(8, kept=3, asked="x")) == "_Own(8, kept=3, asked='x')"


def test_a_layer_that_hands_options_on_shows_those_of_the_class_it_derives_from():
    assert _HandingOn(8, stan_ratio=4).extra_repr() == "8, stan_ratio=4, eps=0.001"


def test_a_layer_that_was_pickled_before_an_option_was_kept_shows_the_others():
    layer = ASRNorm2d(8, stan_ratio=4, bias=False, eps=1e-3)
    del layer.stan_ratio, layer.has_bias
    assert layer.extra_repr() == "8, eps=0.001"


def test_every_domain_has_the_momentum_that_is_shown():
    layer = create_norm("dsbn", 8, num_domains=2)
    for domain in layer.domains:
        domain.momentum = None
    assert layer.extra_repr() == "8, num_domains=2, momentum=None"


def test_an_option_kept_as_an_array_is_not_shown():
    class Weighted(NormLayer):
        def __init__(self, num_features, *, weights=None, slope=1.0):
            super().__init__()
            self.num_features, self.weights, self.slope = num_features, weights, slope

    assert repr(Weighted(4, weights=np.ones(3), slope=2.0)) == "Weighted(4, slope=2.0)"


def test_it_gives_its_input_or_a_copy_of_it():
    norm, x = NoNorm(3), torch.randn(2, 3, 4, 4)
    assert norm(x) is x
    norm.copies = True
    torch.testing.assert_close(norm(x), x, rtol=0, atol=0)
    assert norm(x) is not x


def test_the_gradient_of_a_copy_is_that_of_the_input():
    norm, x = NoNorm(3), torch.randn(2, 3, 4, 4, requires_grad=True)
    norm.copies = True
    (3 * norm(x)).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


def test_it_has_nothing_to_learn_and_still_looks_at_its_input():
    norm = asrnorm.create_norm("none", 3)
    assert list(norm.parameters()) == list(norm.buffers()) == []
    with pytest.raises(InputError):
        norm(torch.zeros(2, 4, 4, 4))
