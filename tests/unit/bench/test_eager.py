import pytest
import torch
from torch import nn

from asrnorm.bench import eager
from asrnorm.norms import ASRNorm2d


@pytest.mark.parametrize("layers", [None, "all"])
def test_the_baseline_has_pytorchs_batch_norm_and_the_other_network_none(layers):
    model = eager.build(eager.QUICK_NETS[0], layers)
    kinds = [type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d | ASRNorm2d)]
    assert kinds == [nn.BatchNorm2d if layers is None else ASRNorm2d] * 13


def test_one_layer_is_measured_in_every_norm():
    (host,) = eager.run(quick=True, only="one layer")
    assert [row.path for row in host] == ["bn", "asr", "in", "gn", "ln"]
    assert host[0].extra["times_baseline"] == 1.0


def test_a_network_is_measured_in_training_and_in_evaluation():
    works = [rows[0].work for rows in eager.run(quick=True, only="WRN")]
    ways = ("eager training step", "eager evaluation, batch 2", "eager evaluation, batch 1")
    assert works == [f"{way}, {eager.QUICK_NETS[0].label}" for way in ways]


@pytest.mark.gpu
def test_a_call_of_a_layer_clears_the_gradients_first():
    layer, x = nn.BatchNorm2d(4).cuda(), torch.randn(2, 4, 3, 3, device="cuda")
    eager.layer_call(layer, x, 3)()
    assert layer.bias.grad.tolist() == [18.0] * 4
