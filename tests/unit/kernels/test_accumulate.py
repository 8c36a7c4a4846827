"""Gradients that a function adds to its parameters itself, against those that autograd adds for it."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from asrnorm.kernels import accumulate as module
from asrnorm.kernels.accumulate import accumulate

added = []  # whether each call added the gradients itself


class Affine(torch.autograd.Function):
    """`x * a + b + c`, whose gradients go through `accumulate` if asked."""

    @staticmethod
    def forward(ctx, direct, x, *weights):
        ctx.save_for_backward(x, *weights)
        ctx.direct = direct
        a, b, c = weights
        return x * a + b + c

    @staticmethod
    def backward(ctx, dy):
        x, a, *_ = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, dy * a, (dy * x).sum(0), dy.sum(0), dy.sum(0)
        grads = [(dy * x).sum(0), dy.sum(0), dy.sum(0)]
        added.append(ctx.direct and accumulate(ctx.next_functions[1:], grads))
        return None, dy * a, *([None] * 3 if added[-1] else grads)


class Layer(nn.Module):
    def __init__(self, direct):
        super().__init__()
        self.direct = direct
        generator = torch.Generator().manual_seed(0)
        self.a, self.b, self.c = (nn.Parameter(torch.randn(5, generator=generator)) for _ in range(3))

    def forward(self, x):
        return Affine.apply(self.direct, x, self.a, self.b, self.c)


def make_x(seed=1):
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def twice(layer, x):
    for seed in (2, 3):
        layer(x).backward(make_x(seed).detach())


def mixed(layer, x):
    layer.b.grad = torch.ones(5)
    twice(layer, x)


def retained(layer, x):
    y = layer(x).sum()
    y.backward(retain_graph=True)
    y.backward()


def reused(layer, x):
    layer(layer(x).square()).sum().backward()


def shared(layer, x):
    (layer(x).sum() + layer.a.square().sum()).backward()


def frozen(layer, x):
    layer.b.requires_grad_(False)
    twice(layer, x)


def frozen_input(layer, x):
    twice(layer, x.detach())


def zeroed(layer, x):
    twice(layer, x)
    torch.optim.SGD(layer.parameters(), lr=1.0).zero_grad(set_to_none=False)
    twice(layer, x)


def checkpointed(layer, x, reentrant):
    checkpoint(layer, x.square(), use_reentrant=reentrant).sum().backward()


def copied(layer, x):
    twice(layer, x)
    other = copy.deepcopy(layer)
    twice(other, x)
    twice(layer, x)
    assert torch.equal(2 * other.a.grad, layer.a.grad)


def after_second_order(layer, x):
    layer(x).square().sum().backward(create_graph=True)
    twice(layer, x)


def gradients(run, direct):
    added.clear()
    layer, x = Layer(direct), make_x()
    run(layer, x)
    return [value.grad for value in (x, *layer.parameters())]


ACCUMULATED = [
    *(twice, mixed, retained, reused, shared, frozen, frozen_input, zeroed, copied),
    *(partial(checkpointed, reentrant=way) for way in (True, False)),
]


@pytest.mark.filterwarnings("ignore:Using backward.* with create_graph")
@pytest.mark.parametrize("run", [*ACCUMULATED, after_second_order])
def test_gradients_are_those_of_autograd(run):
    mine, theirs = gradients(run, True), gradients(run, False)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("run", ACCUMULATED)
def test_the_function_adds_them_itself(run):
    gradients(run, True)
    assert added
    assert all(added)


def tensor_hook(layer, x):
    layer.a.register_hook(lambda grad: 2 * grad)
    twice(layer, x)


def post_accumulate_hook(layer, x):
    layer.a.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", 3 * leaf.grad))
    twice(layer, x)


def only_some(layer, x):
    layer(x).sum().backward(inputs=[x, layer.b])
    assert layer.a.grad is None


def asked_for(layer, x):
    for value, grad in zip([x, layer.c], torch.autograd.grad(layer(x).sum(), [x, layer.c]), strict=True):
        value.grad = grad
    assert layer.a.grad is None


def asked_for_input(layer, x):
    (x.grad,) = torch.autograd.grad(layer(x).sum(), x)


def not_a_leaf(layer, x):
    Affine.apply(layer.direct, x, 2 * layer.a, layer.b, layer.c).sum().backward()


def tied(layer, x):
    layer.c = layer.b
    twice(layer, x)


def sparse(layer, x):
    layer.a.grad = torch.ones(5).to_sparse()
    layer(x).sum().backward()


def with_anomaly_detection(layer, x):
    with torch.autograd.set_detect_anomaly(True):
        twice(layer, x)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(
    "run",
    [
        *(tensor_hook, post_accumulate_hook, only_some, asked_for, asked_for_input, not_a_leaf, tied, sparse),
        with_anomaly_detection,
    ],
)
def test_autograd_adds_them_where_it_does_more(run):
    mine = gradients(run, True)
    assert added
    assert not any(added)
    for one, other in zip(mine, gradients(run, False), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one.to_dense(), other.to_dense())


def test_autograd_adds_them_with_several_processes(monkeypatch):
    monkeypatch.setattr(module.distributed, "is_initialized", lambda: True)
    gradients(twice, True)
    assert added == [False, False]


def test_autograd_adds_them_without_the_question_whether_a_node_runs(monkeypatch):
    monkeypatch.setattr(module, "_will_execute", None)
    gradients(twice, True)
    assert added == [False, False]


def test_a_hook_on_the_node_of_a_parameter_finds_the_gradient():
    layer, found = Layer(True), []
    node = get_gradient_edge(layer.a).node
    node.register_hook(lambda *_: found.append(layer.a.grad.clone()))
    layer(layer(make_x())).sum().backward()
    assert added[-1]
    (grad,) = found
    assert torch.equal(grad, layer.a.grad), "it runs once, after both uses"


def test_a_gradient_that_was_there_is_changed_in_place():
    layer, before = Layer(True), torch.ones(5)
    layer.a.grad = before
    twice(layer, make_x())
    assert layer.a.grad is before
