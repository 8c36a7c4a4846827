"""An optimizer made before a conversion trains the new layers."""

import copy

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputTypeError


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))


def step(model, optimizer):
    model(torch.randn(4, 3, 9, 9)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def in_groups(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam], ids=lambda m: m.__name__)
def test_new_parameters_are_trained_and_old_ones_forgotten(make):
    model = net()
    optimizer = make(model.parameters(), lr=0.01)
    step(model, optimizer)
    old = list(model[1].parameters())
    asrnorm.convert(model, "asr", optimizer=optimizer)
    assert {id(p) for p in in_groups(optimizer)} == {id(p) for p in model.parameters()}
    assert not any(p in optimizer.state for p in old)
    before = [p.detach().clone() for p in model[1].parameters()]
    step(model, optimizer)
    changed = [not torch.equal(a, b) for a, b in zip(before, model[1].parameters(), strict=True)]
    assert sum(changed) >= len(changed) - 2  # the first encoder's single hidden unit may be dead


def test_new_parameters_take_the_group_and_place_of_the_old_ones():
    model = net()
    decayed = [model[0].weight, model[3].weight]
    rest = [p for p in model.parameters() if all(p is not d for d in decayed)]
    optimizer = torch.optim.SGD([{"params": decayed}, {"params": rest, "weight_decay": 0.0}], lr=0.1, weight_decay=5e-4)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    assert len(optimizer.param_groups[0]["params"]) == 2
    ids = [id(p) for p in optimizer.param_groups[1]["params"]]
    assert {id(p) for p in (*model[1].parameters(), *model[4].parameters())} < set(ids)
    assert ids.index(id(model[0].bias)) < ids.index(id(model[1].gamma_bias)) < ids.index(id(model[3].bias))


@pytest.mark.parametrize("norm", ["asr", "as", "bin", "sn", "ilm", "in", "dsbn"])
def test_the_state_fits_an_optimizer_made_for_the_converted_network(norm):
    model = net()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.01, momentum=0.9)
    asrnorm.convert(model, norm, optimizer=optimizer)
    assert [id(p) for p in in_groups(optimizer)] == [id(p) for p in model.parameters()]
    assert optimizer.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]
    step(model, optimizer)
    resumed = asrnorm.convert(net(), norm)
    again = torch.optim.SGD(resumed.named_parameters(), lr=0.01, momentum=0.9)
    again.load_state_dict(optimizer.state_dict())
    for mine, theirs in zip(model.parameters(), resumed.parameters(), strict=True):
        momenta = [one.state[p].get("momentum_buffer") for one, p in ((optimizer, mine), (again, theirs))]
        assert (momenta[0] is None) == (momenta[1] is None)
        assert momenta[0] is None or torch.equal(*momenta)


def test_gain_and_bias_keep_their_own_groups():
    model = net()
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    optimizer = torch.optim.SGD(
        [{"params": weights}, {"params": biases, "weight_decay": 0.0}], lr=0.1, weight_decay=1.0
    )
    asrnorm.convert(model, "asr", optimizer=optimizer)
    first, second = ({id(p) for p in group["params"]} for group in optimizer.param_groups)
    assert {id(model[1].gamma_bias), id(model[1].mu_decoder.weight)} <= first
    assert id(model[1].beta_bias) in second
    assert {id(p) for p in model.parameters()} == first | second
    asrnorm.revert(model, optimizer=optimizer)
    assert [id(p) for p in in_groups(optimizer)] == [id(p) for p in (*weights, *biases)]


def test_momentum_of_the_affine_values_goes_over():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer)
    momentum = optimizer.state[model[1].weight]["momentum_buffer"].clone()
    asrnorm.convert(model, "asr", optimizer=optimizer)
    assert torch.equal(optimizer.state[model[1].gamma_bias]["momentum_buffer"], momentum)


def test_named_parameters_stay_beside_their_names():
    model = net()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    group = optimizer.param_groups[0]
    own = dict(model.named_parameters())
    assert len(group["param_names"]) == len(group["params"])
    assert all(own[name] is p for name, p in zip(group["param_names"], group["params"], strict=True))


def test_layers_that_were_not_in_the_optimizer_are_added_and_noted():
    model = net()
    optimizer = torch.optim.SGD([model[0].weight, model[3].weight], lr=0.1)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    assert any(p is model[1].stan_encoder.weight for p in in_groups(optimizer))
    assert any("added to the first parameter group" in note for note in asrnorm.conversion_summary(model).notes)


def test_revert_puts_the_old_parameters_back():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    names = [id(p) for p in in_groups(optimizer)]
    asrnorm.convert(model, "asr", optimizer=optimizer)
    step(model, optimizer)
    momentum = optimizer.state[model[1].gamma_bias]["momentum_buffer"].clone()
    asrnorm.revert(model, optimizer=optimizer)
    assert [id(p) for p in in_groups(optimizer)] == names
    assert torch.equal(optimizer.state[model[1].weight]["momentum_buffer"], momentum)
    step(model, optimizer)


def test_lbfgs_trains_the_new_layers_and_forgets_its_history():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
    x = torch.randn(4, 3, 9, 9)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    before = [parameter.clone() for parameter in model[1].parameters()]
    optimizer.step(closure)
    assert any(not torch.equal(old, new) for old, new in zip(before, model[1].parameters(), strict=True))


def test_a_single_layer_is_given_back_to_the_optimizer():
    norm = nn.BatchNorm2d(8)
    optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
    converted = asrnorm.convert(norm, "asr", optimizer=optimizer)
    assert asrnorm.revert(converted, optimizer=optimizer) is norm
    assert {id(parameter) for parameter in in_groups(optimizer)} == {id(parameter) for parameter in norm.parameters()}


def test_several_optimizers_are_refused_before_anything_changes():
    model = net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1)]
    with pytest.raises(InputTypeError):
        asrnorm.convert(model, "asr", optimizer=optimizers)
    assert isinstance(model[1], nn.BatchNorm2d)
    asrnorm.convert(model, "asr")
    with pytest.raises(InputTypeError):
        asrnorm.revert(model, optimizer=optimizers)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam], ids=lambda m: m.__name__)
def test_every_new_parameter_is_in_the_optimizer_once(make):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    optimizer = make(model.parameters(), lr=0.01)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    known = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(known) == sorted(id(parameter) for parameter in model.parameters())


def groups_by_name(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]


@pytest.mark.parametrize("norm", ["asr", "none", "in"])
def test_revert_gives_every_parameter_its_own_group_back(norm):
    model = net()
    decayed = [*model[0].parameters(), *model[3].parameters(), model[1].weight]
    plain = [model[1].bias, *model[4].parameters()]
    optimizer = torch.optim.SGD([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=0.1, weight_decay=0.1)
    before = groups_by_name(model, optimizer)
    asrnorm.convert(model, norm, layers="all", optimizer=optimizer)
    asrnorm.revert(model, optimizer=optimizer)
    assert [sorted(group) for group in groups_by_name(model, optimizer)] == [sorted(group) for group in before]


def test_revert_adds_nothing_that_the_optimizer_did_not_train_before():
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    asrnorm.convert(model, "asr", optimizer=optimizer)
    step(model, optimizer)
    asrnorm.revert(model, optimizer=optimizer)
    assert groups_by_name(model, optimizer) == [["0.weight", "0.bias"]]
    step(model, optimizer)


def test_an_optimizer_made_after_the_conversion_gets_the_originals():
    for _ in range(20):  # in some of which it lies where the first one lay
        model = net()
        asrnorm.convert(model, "asr", optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        asrnorm.revert(model, optimizer=optimizer)
        assert {id(p) for p in in_groups(optimizer)} == {id(p) for p in model.parameters()}


def names_in_groups(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def test_every_domain_inherits_group_and_momentum_and_the_first_hands_them_back():
    model = net()
    gains = [p for name, p in model.named_parameters() if name != "1.bias"]
    optimizer = torch.optim.SGD([{"params": gains}, {"params": [model[1].bias]}], lr=0.01, momentum=0.9)
    step(model, optimizer)
    before = names_in_groups(model, optimizer)
    momentum = optimizer.state[model[1].bias]["momentum_buffer"].clone()
    asrnorm.convert(model, "dsbn", layers=["1"], num_domains=2, optimizer=optimizer)
    assert names_in_groups(model, optimizer)[1] == ["1.domains.0.bias", "1.domains.1.bias"]
    first, second = (optimizer.state[domain.bias]["momentum_buffer"] for domain in model[1].domains)
    assert torch.equal(first, momentum)
    assert torch.equal(second, momentum)
    step(model, optimizer)
    assert torch.equal(second, momentum)  # only the first domain was trained
    assert not torch.equal(first, momentum)
    asrnorm.revert(model, optimizer=optimizer)
    assert names_in_groups(model, optimizer) == before
    assert torch.equal(optimizer.state[model[1].bias]["momentum_buffer"], first)


@pytest.mark.parametrize("turns", [("none", "none"), ("asr", "none"), ("none", "asr")], ids=str)
@pytest.mark.parametrize("places", [("1", "4"), ("4", "1")], ids=str)
def test_parameters_come_back_to_their_places_from_a_norm_without_any(turns, places):
    model = nn.Sequential(*net(), nn.Conv2d(8, 2, 1))
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.01, momentum=0.9)
    before, names = names_in_groups(model, optimizer), list(optimizer.param_groups[0]["param_names"])
    for norm, place in zip(turns, places, strict=True):
        asrnorm.convert(model, norm, layers=[place], optimizer=optimizer)
    asrnorm.revert(model, optimizer=optimizer)
    assert names_in_groups(model, optimizer) == before
    assert optimizer.param_groups[0]["param_names"] == names


def test_a_state_saved_before_a_conversion_loads_after_it_was_undone():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    asrnorm.convert(model, "none", optimizer=optimizer)
    asrnorm.revert(model, optimizer=optimizer)
    optimizer.load_state_dict(saved)
    step(model, optimizer)
    assert all(optimizer.state[parameter]["exp_avg"].shape == parameter.shape for parameter in model.parameters())


@pytest.mark.parametrize("norm", ["asr", "bin", "in", "none"])
def test_parameters_that_stood_in_another_order_come_back_to_it(norm):
    model = net()
    optimizer = torch.optim.SGD(list(reversed(list(model.parameters()))), lr=0.01, momentum=0.9)
    step(model, optimizer)
    before, saved = in_groups(optimizer), copy.deepcopy(optimizer.state_dict())
    momentum = optimizer.state[model[1].bias]["momentum_buffer"].clone()
    asrnorm.convert(model, norm, optimizer=optimizer)
    asrnorm.revert(model, optimizer=optimizer)
    assert [id(p) for p in in_groups(optimizer)] == [id(p) for p in before]
    optimizer.load_state_dict(saved)
    assert torch.equal(optimizer.state[model[1].bias]["momentum_buffer"], momentum)
