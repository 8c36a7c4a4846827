"""Small batches in one call: BN-Test keeps them apart, and nothing else is joined."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from asrnorm import create_model
from asrnorm.core.errors import InputError
from asrnorm.evaluation import inference as bundle
from asrnorm.evaluation import score
from asrnorm.evaluation.inference import Forward, Inference, count_together
from asrnorm.norms import BatchNormTest
from helpers.toy_suite import make_images


def net(norm="bn_test"):
    torch.manual_seed(0)
    return create_model("wrn_16_4", num_classes=4, norm=norm).eval()


def test_batches_scored_together_score_as_one_by_one_and_not_as_one_batch(monkeypatch):
    model, data, sizes = net(), make_images(21), []
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    plain = score(model, data, name="toy", batch_size=4)
    monkeypatch.setattr(bundle, "_DEVICES", ("cpu",))
    joined = score(model, data, name="toy", batch_size=4)
    assert sizes == [4, 4, 4, 3, 3, 3, 12, 9]
    assert joined.nll == pytest.approx(plain.nll, rel=1e-5)
    assert joined.brier == pytest.approx(plain.brier, rel=1e-5)
    assert score(model, data, name="toy", batch_size=21).nll != pytest.approx(plain.nll, rel=1e-3)
    assert all(layer.batches == 1 for layer in model.modules() if isinstance(layer, BatchNormTest))


def test_only_a_gpu_and_only_bn_test_is_given_several_and_no_more_pixels_than_512_small_images():
    gpu = replace(Inference.of(net()), device=torch.device("cuda"))
    assert [count_together(gpu, size, (32, 32)) for size in (16, 500, 600)] == [32, 1, 1]
    assert count_together(gpu, 16, (224, 224)) == 1
    assert count_together(Inference.of(net()), 16, (32, 32)) == 1
    assert count_together(replace(gpu, model=net("bn")), 16, (32, 32)) == 1
    mixed = nn.Sequential(net(), nn.BatchNorm1d(4, track_running_stats=False)).eval()
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
    with pytest.raises(InputError, match=r"BatchNormTest\(5\): 6 samples are not 4 batches of one size"):
        layer(torch.randn(6, 5, 2, 2))


@pytest.mark.gpu
def test_a_gpu_replays_the_right_number_of_batches():
    model = net().cuda()
    forward, images = Forward(Inference.of(model)), torch.rand(24, 3, 32, 32, device="cuda")
    for batches in (6, 4, 1):
        with torch.no_grad():
            apart = torch.cat([model(part) for part in images.split(24 // batches)])
        for _ in range(12):
            torch.testing.assert_close(forward(images, batches), apart, rtol=1e-3, atol=1e-3)
