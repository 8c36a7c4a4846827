"""BN, BN-Test and DSBN, and the running statistics of all norms that keep some."""

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import BatchNorm, BatchNormTest, DomainBatchNorm, create_norm, set_domain
from asrnorm.norms.batch import newest_batch_weight

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


def test_bn_test_uses_the_batch_in_evaluation_and_does_not_track_it():
    layer = BatchNormTest(8)
    layer(X)
    layer.eval()
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    shifted = 10 + 5 * X
    torch.testing.assert_close(layer(shifted), nn.BatchNorm2d(8)(shifted))
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())


def test_bn_test_takes_the_state_of_bn():
    trained = BatchNorm(8)
    trained(X)
    layer = BatchNormTest(8)
    layer.load_state_dict(trained.state_dict())
    assert torch.equal(layer.running_mean, trained.running_mean)


def test_dsbn_normalizes_each_sample_by_its_domain():
    layer = DomainBatchNorm(8, num_domains=2)
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    assert set_domain(nn.Sequential(layer), labels) == 1
    y = layer(X)
    for domain in (0, 1):
        torch.testing.assert_close(y[labels == domain], nn.BatchNorm2d(8)(X[labels == domain]))
    set_domain(layer, 1)
    layer.eval()
    torch.testing.assert_close(layer(X), layer.domains[1](X))


def test_dsbn_gradients_reach_samples_of_all_domains():
    layer = DomainBatchNorm(8, num_domains=3)
    set_domain(layer, torch.tensor([0, 1, 1, 0, 2, 2]))
    x = X.clone().requires_grad_()
    layer(x).square().sum().backward()
    assert (x.grad.flatten(1).abs().sum(1) > 0).all()


@pytest.mark.parametrize("shape", [(4, 8, 3, 3), (4, 8, 2, 3, 3)])
def test_dsbn_keeps_the_layout_of_samples_of_several_domains(shape):
    layer = DomainBatchNorm(8, num_domains=2)
    set_domain(layer, torch.tensor([0, 1, 1, 0]))
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    y = layer(torch.randn(shape).contiguous(memory_format=last))
    assert y.is_contiguous(memory_format=last)


def test_dsbn_refuses_labels_for_each_sample_where_processes_share_a_batch():
    layer = DomainBatchNorm(8, num_domains=2)
    for domain in layer.domains:
        domain.process_sum = lambda values: values
    set_domain(layer, torch.tensor([0, 1, 1, 0, 1, 0]))
    with pytest.raises(InputError):
        layer(X)
    assert layer.eval()(X).shape == X.shape, "running statistics are everyone's"
    set_domain(layer.train(), 1)
    assert layer(X).shape == X.shape


def test_dsbn_refuses_domains_it_lacks():
    layer = DomainBatchNorm(8, num_domains=2)
    with pytest.raises(InputError):
        set_domain(layer, 2)
    with pytest.raises(InputError):
        set_domain(layer, torch.tensor([0, -1]))
    with pytest.raises(InputError):
        set_domain(nn.ReLU(), 0)
    set_domain(layer, torch.tensor([0, 1]))
    with pytest.raises(InputError):
        layer(X)
    with pytest.raises(InputError):
        DomainBatchNorm(8, num_domains=0)


@pytest.mark.parametrize("domain", [np.int64(1), torch.tensor([1, 1])])
def test_a_domain_may_be_any_whole_number_or_one_for_each_sample(domain):
    layer = create_norm("dsbn", 4, num_domains=2)
    assert set_domain(layer, domain) == 1
    assert layer(torch.randn(2, 4, 3, 3)).shape == (2, 4, 3, 3)


def test_a_list_of_domains_is_rejected():
    with pytest.raises(InputTypeError):
        set_domain(create_norm("dsbn", 4), [0, 1])


@pytest.mark.parametrize("norm", ["bn", "bn_test", "dsbn"])
def test_a_compiled_layer_takes_batches_of_any_size_without_a_break(norm):
    layer = create_norm(norm, 8)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for size in (2, 3, 5):
        compiled(X[:size])
    expected = create_norm(norm, 8)
    for size in (2, 3, 5):
        expected(X[:size])
    for name, buffer in expected.named_buffers():
        torch.testing.assert_close(layer.get_buffer(name), buffer)


def test_domain_labels_are_whole_numbers():
    layer = DomainBatchNorm(8, num_domains=2)
    with pytest.raises(InputTypeError):
        set_domain(layer, torch.tensor([0.5, 1.0]))
    set_domain(layer, torch.zeros(0, dtype=torch.long))
    assert layer(X[:0]).shape == X[:0].shape


def test_labels_changed_in_place_to_an_unknown_domain_are_rejected():
    layer = DomainBatchNorm(8, num_domains=2).eval()
    labels = torch.tensor([0, 1, 1, 0, 0, 1])
    set_domain(layer, labels)
    labels[:2] = 7
    with pytest.raises(InputError):
        layer(X)


def test_samples_of_several_domains_keep_their_memory_format():
    layer = DomainBatchNorm(8, num_domains=2).eval()
    set_domain(layer, torch.tensor([0, 1, 1, 0, 0, 1]))
    x = X.to(memory_format=torch.channels_last)
    assert layer(x).stride() == x.stride()
    assert layer(X).stride() == X.stride()


@pytest.mark.parametrize("name", ["bn", "bn_test", "sn", "bin"])
def test_without_momentum_all_batches_weigh_the_same(name):
    torch.manual_seed(0)
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    model = nn.Sequential(create_norm(name, 3, momentum=None))
    for batch in data:
        model(batch)
    torch.testing.assert_close(model[0].running_mean, torch.stack(data).mean((0, 1, 3, 4)))
    variance = torch.stack([batch.var((0, 2, 3)) for batch in data]).mean(0)
    torch.testing.assert_close(model[0].running_var, variance, rtol=0.05, atol=0)


@pytest.mark.parametrize("name", ["bn", "bn_test", "dsbn"])
def test_averaged_weights_get_the_statistics_that_pytorch_gives(name):
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    ours, theirs = nn.Sequential(create_norm(name, 3)), nn.Sequential(nn.BatchNorm2d(3))
    for model in (ours, theirs):
        torch.optim.swa_utils.update_bn(data, model)
    state = ours[0].domains[0] if name == "dsbn" else ours[0]
    torch.testing.assert_close(state.running_mean, theirs[0].running_mean)
    torch.testing.assert_close(state.running_var, theirs[0].running_var)


def test_the_newest_batch_has_its_momentum_or_its_share():
    assert newest_batch_weight(0.1, torch.tensor(4)) == 0.1
    assert newest_batch_weight(None, torch.tensor(4)) == 0.25


@pytest.mark.parametrize("name", ["dsbn", "dson"])
@pytest.mark.parametrize("count", [0, 2**31])
def test_a_number_of_domains_that_would_take_hours_is_rejected(name, count):
    with pytest.raises(InputError, match="num_domains"):
        create_norm(name, 4, num_domains=count)
