"""A model on many batches: which calls are replayed, and that they give the same."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from asrnorm import create_model
from asrnorm.evaluation import inference as module
from asrnorm.evaluation.inference import Forward, Inference
from asrnorm.norms import BatchNormTest


class StandIn:
    """A graph that computes when it is replayed, into the same memory."""

    made: list["StandIn"]

    def __init__(self, function):
        self.function, self.output, self.replays = function, function(), 0
        StandIn.made.append(self)

    def replay(self):
        self.replays += 1
        self.output.copy_(self.function())


@pytest.fixture
def graphs(monkeypatch):
    StandIn.made = []
    monkeypatch.setattr(module, "capture", lambda function, device, *, what: StandIn(function))
    return StandIn.made


def pretend_cuda(model):
    """Calls as on a GPU, computed on the CPU."""
    inference = Inference.of(model.eval())
    forward = Forward(inference)
    forward._is_refused = Forward(replace(inference, device=torch.device("cuda")))._is_refused
    return forward


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))


def test_from_the_ninth_batch_of_a_shape_on_a_graph_is_replayed_with_the_same_logits(graphs):
    model = net()
    forward = pretend_cuda(model)
    batches = [torch.rand(4, 3, 2, 2) for _ in range(12)]
    found = [forward(images) for images in batches]
    for images, logits in zip(batches, found, strict=True):
        assert torch.equal(logits, model(images))
    assert [graph.replays for graph in graphs] == [4]


def test_another_shape_starts_anew_and_weights_may_change_in_between(graphs):
    model = net()
    forward = pretend_cuda(model)
    for _ in range(10):
        forward(torch.rand(4, 3, 2, 2))
    images = torch.rand(3, 3, 2, 2)
    for _ in range(10):
        assert torch.equal(forward(images), model(images))
    with torch.no_grad():
        model[1].weight.mul_(2)
    assert torch.equal(forward(images), model(images))
    assert [graph.replays for graph in graphs] == [2, 3]


def test_shapes_that_take_turns_have_a_graph_each(graphs):
    model = net()
    forward = pretend_cuda(model)
    for _ in range(4):  # domains of three batches of one size and one of another, as BN-Test at 64 has them
        for count in (4, 4, 4, 3):
            images = torch.rand(count, 3, 2, 2)
            assert torch.equal(forward(images), model(images))
    assert [graph.replays for graph in graphs] == [4]
    for _ in range(5):
        forward(torch.rand(3, 3, 2, 2))
    assert [graph.replays for graph in graphs] == [4, 1]
    for _ in range(2):
        forward(torch.rand(4, 3, 2, 2))
    assert [graph.replays for graph in graphs] == [6, 1]


def test_graphs_of_shapes_long_not_seen_are_let_go(graphs):
    forward = pretend_cuda(net())
    for count in (9, 1, 2, 3, 1, 4):  # the first is the one that was seen longest ago when the fifth comes
        for _ in range(9):
            forward(torch.rand(count, 3, 2, 2))
    assert {form[0][0] for form in forward._shapes} == {1, 2, 3, 4}
    assert len(graphs) == 5


def test_as_many_images_in_another_number_of_batches_start_anew(graphs):
    model = nn.Sequential(BatchNormTest(3), net()).eval()
    forward, images = pretend_cuda(model), torch.rand(6, 3, 2, 2)
    for batches in (2, 3):
        apart = torch.cat([model(part) for part in images.split(6 // batches)])
        for _ in range(10):
            torch.testing.assert_close(forward(images, batches), apart)
    assert [graph.replays for graph in graphs] == [2, 2]


def test_a_model_that_cannot_be_captured_is_called(monkeypatch):
    tried = []
    monkeypatch.setattr(module, "capture", lambda function, device, *, what: tried.append(what))
    model = net()
    forward = pretend_cuda(model)
    images = torch.rand(4, 3, 2, 2)
    for _ in range(20):
        assert torch.equal(forward(images), model(images))
    assert tried == ["the evaluation"]


def test_hooks_of_a_model_run_on_every_batch(graphs):
    model, seen = net(), []
    model[1].register_forward_hook(lambda *_: seen.append(1))
    forward = pretend_cuda(model)
    for _ in range(20):
        forward(torch.rand(4, 3, 2, 2))
    assert len(seen) == 20
    assert graphs == []


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("norm", "precision"), [("bn", "bfloat16"), ("asr", "bfloat16"), ("asr", "tf32"), ("bn_test", "float32")]
)
def test_a_gpu_gives_the_logits_of_eager_calls(norm, precision):
    model = create_model("wrn_16_4", norm=norm).cuda().eval()
    inference = Inference.of(model, precision=precision)
    forward = Forward(inference)
    batches = [torch.rand(32, 3, 32, 32, device="cuda") for _ in range(12)]
    found = [forward(images) for images in batches]
    assert [shape.graph is not None for shape in forward._shapes.values()] == [True]
    with torch.no_grad():
        for images, logits in zip(batches, found, strict=True):
            assert torch.equal(logits, inference.logits(images))
