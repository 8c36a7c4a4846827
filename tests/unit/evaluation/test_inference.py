"""How images reach a model, which calls are replayed from CUDA graphs, and which batches share a call."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm import create_model
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.augment import resize, to_float
from asrnorm.evaluation import inference as inference_module
from asrnorm.evaluation import score
from asrnorm.evaluation.inference import Forward, Inference, count_together
from asrnorm.norms import BatchNormTest
from helpers.toy_suite import make_images


class Probe(nn.Module):
    """Keeps what it was called with."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, images):
        self.seen = images
        return self.linear(images.mean((2, 3)))


def test_pixels_become_float_in_the_unit_range_in_the_same_order():
    images = make_images(5).images
    seen = Inference.of(Probe()).to_input(images)
    assert seen.dtype == torch.float32
    assert seen.shape == (5, 3, 8, 8)
    np.testing.assert_array_equal(seen.permute(0, 2, 3, 1).numpy(), images.astype(np.float32) / np.float32(255))


def test_resizing_is_pillow_s_on_uint8():
    images = make_images(5).images
    wanted = to_float(resize(torch.from_numpy(images).permute(0, 3, 1, 2), (6, 7)))
    assert torch.equal(Inference.of(Probe(), size=(6, 7)).to_input(images), wanted)


def test_read_only_and_strided_images_are_taken():
    images = make_images(6).images
    images.setflags(write=False)
    for rows in (slice(None), slice(1, None, 2)):
        seen = Inference.of(Probe()).to_input(images[rows])
        np.testing.assert_array_equal((255 * seen).round().byte().permute(0, 2, 3, 1).numpy(), images[rows])


def test_float64_models_get_float64():
    inference = Inference.of(Probe().double(), precision="float64")
    assert inference.to_input(make_images(2).images).dtype == torch.float64
    assert inference.logits(inference.to_input(make_images(2).images)).dtype == torch.float64


def test_bfloat16_computes_under_autocast_from_float32():
    inference = Inference.of(Probe(), precision="bfloat16")
    images = inference.to_input(make_images(2).images)
    assert images.dtype == torch.float32
    assert inference.logits(images).dtype == torch.bfloat16


def test_tf32_is_for_models_in_float32():
    probe, images = Probe(), torch.rand(2, 3, 8, 8)
    assert torch.equal(Inference.of(probe, precision="tf32").logits(images), Inference.of(probe).logits(images))
    with pytest.raises(InputError, match=r"model\.to\(torch\.float32\)"):
        Inference.of(Probe().double(), precision="tf32")


def test_a_precision_that_is_not_the_model_s_is_refused():
    with pytest.raises(InputError, match=r"model\.to\(torch\.float64\)"):
        Inference.of(Probe(), precision="float64")
    with pytest.raises(UnknownNameError, match="did you mean 'float32'"):
        Inference.of(Probe(), precision="float23")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (lambda x: {"logits": x.mean((2, 3))}, "Answer .* dict"),
        (lambda x: (x.mean((2, 3)), None), "Answer .* tuple"),
        (lambda x: x.mean((2, 3), keepdim=True), r"Answer .* \(2, 3, 1, 1\)"),
    ],
)
def test_anything_but_logits_is_refused_in_one_line(answer, line):
    class Answer(nn.Module):
        def forward(self, x):
            return answer(x)

    inference = Inference.of(Answer())
    with pytest.raises(InputError, match=line):
        inference.logits(torch.rand(2, 3, 4, 4))


def test_a_model_without_parameters_is_taken_to_be_on_the_cpu():
    assert Inference.of(nn.Flatten()).device.type == "cpu"


@pytest.mark.parametrize(("shape", "line"), [((8, 8, 3), r"images\[None\]"), ((2, 3, 8, 8), r"\(2, 3, 8, 8\)$")])
def test_images_of_another_shape_are_refused_in_one_line(shape, line):
    with pytest.raises(InputError, match=line):
        Inference.of(Probe()).to_input(np.zeros(shape, np.uint8))


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
    monkeypatch.setattr(inference_module, "capture", lambda function, device, *, what: StandIn(function))
    return StandIn.made


def pretend_cuda(model):
    """Calls as on a GPU, computed on the CPU."""
    inference = Inference.of(model.eval())
    forward = Forward(inference)
    forward._is_eager = Forward(replace(inference, device=torch.device("cuda")))._is_eager
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


def test_another_shape_has_its_own_graph_and_weights_may_change_in_between(graphs):
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


def test_as_many_images_in_another_number_of_batches_have_a_graph_of_their_own(graphs):
    model = nn.Sequential(BatchNormTest(3), net()).eval()
    forward, images = pretend_cuda(model), torch.rand(6, 3, 2, 2)
    for batches in (2, 3):
        apart = torch.cat([model(part) for part in images.split(6 // batches)])
        for _ in range(10):
            torch.testing.assert_close(forward(images, batches), apart)
    assert [graph.replays for graph in graphs] == [2, 2]


def test_a_model_that_cannot_be_captured_is_called(monkeypatch):
    tried = []
    monkeypatch.setattr(inference_module, "capture", lambda function, device, *, what: tried.append(what))
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


def wide_net(norm="bn_test"):
    torch.manual_seed(0)
    return create_model("wrn_16_4", num_classes=4, norm=norm).eval()


def test_batches_scored_together_score_as_one_by_one_and_not_as_one_batch(monkeypatch):
    model, data, sizes = wide_net(), make_images(21), []
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    plain = score(model, data, name="toy", batch_size=4)
    monkeypatch.setattr(inference_module, "_BUNDLE_DEVICES", ("cpu",))
    joined = score(model, data, name="toy", batch_size=4)
    assert sizes == [4, 4, 4, 3, 3, 3, 12, 9]
    assert joined.nll == pytest.approx(plain.nll, rel=1e-5)
    assert joined.brier == pytest.approx(plain.brier, rel=1e-5)
    assert score(model, data, name="toy", batch_size=21).nll != pytest.approx(plain.nll, rel=1e-3)
    assert all(layer.batches == 1 for layer in model.modules() if isinstance(layer, BatchNormTest))


def test_only_a_gpu_and_only_bn_test_is_given_several_and_no_more_pixels_than_512_small_images():
    gpu = replace(Inference.of(wide_net()), device=torch.device("cuda"))
    assert [count_together(gpu, size, (32, 32)) for size in (16, 500, 600)] == [32, 1, 1]
    assert count_together(gpu, 16, (224, 224)) == 1
    assert count_together(Inference.of(wide_net()), 16, (32, 32)) == 1
    assert count_together(replace(gpu, model=wide_net("bn")), 16, (32, 32)) == 1
    mixed = nn.Sequential(wide_net(), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    assert count_together(replace(gpu, model=mixed), 16, (32, 32)) == 1


@pytest.mark.parametrize("shape", [(6, 5, 4, 4), (6, 5, 7), (6, 5)])
def test_each_batch_is_standardized_by_itself(shape):
    layer, x = BatchNormTest(5).eval(), 3 + torch.randn(shape)
    with torch.no_grad():
        layer.weight.uniform_(0.5, 2.0)
        layer.bias.uniform_(-1.0, 1.0)
    apart = torch.cat([layer(part) for part in x.split(2)])
    layer.batches = 3
    torch.testing.assert_close(layer(x), apart)
    layer.train()
    assert not torch.allclose(layer(x), apart), "in training there is one batch"


def test_batches_of_unequal_size_are_refused():
    layer = BatchNormTest(5).eval()
    layer.batches = 4
    with pytest.raises(InputError, match=r"BatchNormTest\(5\)"):
        layer(torch.randn(6, 5, 2, 2))


@pytest.mark.gpu
def test_a_gpu_replays_the_right_number_of_batches():
    model = wide_net().cuda()
    forward, images = Forward(Inference.of(model)), torch.rand(24, 3, 32, 32, device="cuda")
    for batches in (6, 4, 1):
        with torch.no_grad():
            apart = torch.cat([model(part) for part in images.split(24 // batches)])
        for _ in range(12):
            torch.testing.assert_close(forward(images, batches), apart, rtol=1e-3, atol=1e-3)
