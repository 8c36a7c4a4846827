"""The paper's first remark: with the right f and g, the general form gives BN, DSBN, GN (so IN and LN) and SN.

The general form adds eps beside the deviation, those layers add it under the root: here it is part of g, and the eps of
the general form is zero. "Equal" means to a few roundings of float64, in the values and in the gradient of the input.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from asrnorm.norms import create_norm, set_domain
from asrnorm.ops import standardize_rescale
from helpers.norm_case import NormCase, draw_input

EPS = 1e-5
SHAPE = (6, 12, 5, 3)

Statistic = Callable[[Tensor], Tensor]


def general_form(f: Statistic, g: Statistic, layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """The paper's equation with the gain and bias of `layer`."""
    return lambda x: standardize_rescale(x, f(x), g(x), layer.weight, layer.bias, eps=0.0)


def assert_same_function(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], x: Tensor) -> None:
    x = x.clone().requires_grad_()
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    value, truth = ours(x), theirs(x)
    torch.testing.assert_close(value, truth, rtol=1e-12, atol=1e-12)
    slopes = (torch.autograd.grad((weight * y).sum(), x)[0] for y in (value, truth))
    torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-11)


def randomize(layer: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data.normal_(generator=generator)
    return layer.double()


def constant(value: Tensor) -> Statistic:
    return lambda _: value


def deviation(variance: Tensor) -> Tensor:
    return torch.sqrt(variance + EPS)


def test_bn_is_the_general_form_with_the_constants_of_the_whole_training_set():
    training_set, unseen = draw_input(SHAPE, seed=1), draw_input(SHAPE, seed=2)
    layer = randomize(nn.BatchNorm2d(SHAPE[1], eps=EPS, momentum=1.0))
    f = constant(training_set.mean((0, 2, 3)))
    g = constant(deviation(training_set.var((0, 2, 3), correction=0)))
    general = general_form(f, g, layer)

    with torch.no_grad():  # the training set as one batch
        torch.testing.assert_close(general(training_set), layer(training_set), rtol=1e-12, atol=1e-12)
    layer.running_var.copy_(training_set.var((0, 2, 3), correction=0))  # torch's own is the unbiased one
    assert_same_function(general, layer.eval(), unseen)
    ours = create_norm("bn", SHAPE[1], eps=EPS, dtype=torch.float64).eval()
    ours.load_state_dict(layer.state_dict())
    assert_same_function(general, ours, unseen)


def test_dsbn_is_the_general_form_with_constants_for_each_domain():
    num_domains = 3
    domains_of_training = [draw_input(SHAPE, seed=d) + d for d in range(num_domains)]
    layer = randomize(create_norm("dsbn", SHAPE[1], num_domains=num_domains, eps=EPS, momentum=1.0))
    mean_dc = torch.stack([x.mean((0, 2, 3)) for x in domains_of_training])
    var_dc = torch.stack([x.var((0, 2, 3), correction=0) for x in domains_of_training])
    # The remark says nothing of gain and bias; DSBN has one pair a domain, chosen in the same way.
    gain_dc, bias_dc = (torch.stack([getattr(bn, key) for bn in layer.domains]) for key in ("weight", "bias"))

    def general(x: Tensor, domain_n: Tensor) -> Tensor:
        indicator_nd = nn.functional.one_hot(domain_n, num_domains).double()
        mean, std, gain, bias = (indicator_nd @ s for s in (mean_dc, deviation(var_dc), gain_dc, bias_dc))
        return standardize_rescale(x, mean, std, gain, bias, eps=0.0)

    for domain, x in enumerate(domains_of_training):  # each domain's data as a batch
        set_domain(layer, domain)
        labels = torch.full((len(x),), domain)
        torch.testing.assert_close(general(x, labels), layer(x), rtol=1e-12, atol=1e-12)
        layer.domains[domain].running_var.copy_(var_dc[domain])

    labels = torch.tensor([2, 0, 1, 1, 0, 2])
    set_domain(layer.eval(), labels)
    assert_same_function(lambda x: general(x, labels), layer, draw_input(SHAPE, seed=9))


@pytest.mark.parametrize("num_groups", [1, 2, 3, 4, 6, 12])
def test_gn_is_the_general_form_with_the_statistics_of_groups_of_channels(num_groups):
    layer = randomize(nn.GroupNorm(num_groups, SHAPE[1], eps=EPS))
    assert_same_function(general_form(*group_statistics(num_groups), layer), layer, draw_input(SHAPE))
    ours = create_norm("gn", SHAPE[1], num_groups=num_groups, eps=EPS, dtype=torch.float64)
    ours.load_state_dict(layer.state_dict())
    assert_same_function(general_form(*group_statistics(num_groups), layer), ours, draw_input(SHAPE))


def group_statistics(num_groups: int) -> tuple[Statistic, Statistic]:
    def spread(statistic_ng: Tensor) -> Tensor:
        return statistic_ng.repeat_interleave(SHAPE[1] // num_groups, dim=1)

    def f(x: Tensor) -> Tensor:
        return spread(x.reshape(len(x), num_groups, -1).mean(2))

    def g(x: Tensor) -> Tensor:
        return spread(deviation(x.reshape(len(x), num_groups, -1).var(2, correction=0)))

    return f, g


def test_in_is_the_general_form_with_a_group_for_each_channel():
    layer = randomize(nn.InstanceNorm2d(SHAPE[1], eps=EPS, affine=True))
    general = general_form(*group_statistics(SHAPE[1]), layer)
    assert_same_function(general, layer, draw_input(SHAPE))
    ours = create_norm("in", SHAPE[1], eps=EPS, dtype=torch.float64)
    ours.load_state_dict(layer.state_dict())
    assert_same_function(general, ours, draw_input(SHAPE))


def test_ln_is_the_general_form_with_one_group():
    ours = randomize(create_norm("ln", SHAPE[1], eps=EPS))
    theirs = nn.LayerNorm(SHAPE[1:], eps=EPS, dtype=torch.float64)  # which has a gain for each position too
    for key in ("weight", "bias"):
        getattr(theirs, key).data.copy_(getattr(ours, key).data[:, None, None].expand(SHAPE[1:]))
    general = general_form(*group_statistics(1), ours)
    assert_same_function(general, theirs, draw_input(SHAPE))
    assert_same_function(general, ours, draw_input(SHAPE))


def switchable_moments(layer: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Means and variances of IN, LN and, where the layer has three logits, BN, broadcastable to `(n, c)`."""
    mean_in, var_in = x.mean((2, 3)), x.var((2, 3))
    square = var_in + mean_in**2
    means, variances = [mean_in], [var_in]
    for axis in (1, 0)[: len(layer.mean_logits) - 1]:  # 1: the sample's channels, 0: the batch
        means.append(mean_in.mean(axis, keepdim=True))
        variances.append(square.mean(axis, keepdim=True) - means[-1] ** 2)
    return means, variances


def mixture(logits: Tensor, parts: list[Tensor]) -> Tensor:
    return sum(weight * part for weight, part in zip(torch.softmax(logits, 0), parts, strict=True))


@pytest.mark.parametrize("name", ["sn", "sn_in_ln"])
def test_sn_is_the_general_form_with_mixtures_of_bn_in_and_ln(name):
    layer = NormCase(name).layer(SHAPE[1])
    general = general_form(
        lambda x: mixture(layer.mean_logits, switchable_moments(layer, x)[0]),
        lambda x: deviation(mixture(layer.var_logits, switchable_moments(layer, x)[1])),
        layer,
    )
    assert_same_function(general, layer, draw_input(SHAPE))


@pytest.mark.parametrize("name", ["sn", "sn_in_ln"])
def test_sn_mixes_variances_where_the_remark_writes_deviations(name):
    layer = NormCase(name).layer(SHAPE[1])
    as_written = general_form(
        lambda x: mixture(layer.mean_logits, switchable_moments(layer, x)[0]),
        lambda x: mixture(layer.var_logits, [deviation(v) for v in switchable_moments(layer, x)[1]]),
        layer,
    )
    x = draw_input(SHAPE)
    assert not torch.allclose(as_written(x), layer(x), rtol=1e-3)
    for chosen in range(len(layer.var_logits)):  # both agree where a single part has all the weight
        layer.var_logits.data.fill_(-1e3)[chosen] = 0.0
        assert_same_function(as_written, layer, x)
