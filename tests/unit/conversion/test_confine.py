"""Limits of learned means from source images: source outputs stay, and distant images are clamped."""

import copy

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError, InputError
from asrnorm.norms import ARNorm2d, ASRNorm2d


def strayed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), ASRNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3), ASRNorm2d(8), nn.Dropout())
    with torch.no_grad():
        model[1].mu_decoder.weight.mul_(100)
        model[4].mu_decoder.weight.mul_(100)
    return model


def shifts(model, images):
    found = []
    norms = [layer for layer in model if isinstance(layer, ASRNorm2d)]
    handles = [
        layer.register_forward_pre_hook(lambda layer, inputs: found.append(layer.learned_shift(inputs[0])))
        for layer in norms
    ]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    return found


@pytest.fixture
def source():
    return [torch.rand(size, 3, 12, 12, generator=torch.Generator().manual_seed(size)) for size in (5, 9)]


def test_source_images_score_as_before_to_the_bit(source):
    model = strayed().eval()
    before = [model(images) for images in source]
    assert asrnorm.confine(model, source) == 2
    for images, expected in zip(source, before, strict=True):
        torch.testing.assert_close(model(images), expected, rtol=1e-5, atol=1e-5)


def test_limits_are_the_extremes_over_all_batches(source):
    model = strayed()
    free = shifts(model, torch.cat(source))
    asrnorm.confine(model, source)
    for layer, shift in zip((model[1], model[4]), free, strict=True):
        torch.testing.assert_close(layer.shift_least, shift.amin(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.shift_most, shift.amax(0), rtol=1e-4, atol=1e-5)


def test_far_images_stray_no_further_than_the_source(source):
    model = strayed()
    far = 5 + 0.01 * torch.rand(7, 3, 12, 12)
    free = shifts(model, far)
    asrnorm.confine(model, source)
    assert float(free[0].abs().max()) > 2 * float(model[1].shift_most.abs().max())
    for shift, layer in zip(shifts(model, far), (model[1], model[4]), strict=True):
        assert bool((shift <= layer.shift_most + 1e-3).all())
        assert bool((shift >= layer.shift_least - 1e-3).all())


def test_done_again_it_finds_the_range_anew(source):
    model = strayed()
    asrnorm.confine(model, source[:1])
    asrnorm.confine(model, source)
    once = strayed()
    asrnorm.confine(once, source)
    assert torch.equal(model[1].shift_most, once[1].shift_most)
    assert asrnorm.confine(model, source, num_batches=1) == 2
    assert not torch.equal(model[1].shift_most, once[1].shift_most)


def test_parameters_modes_and_hooks_stay(source):
    model = strayed().train()
    model[2].eval()
    before, modes = copy.deepcopy(dict(model.named_parameters())), [module.training for module in model.modules()]
    asrnorm.confine(model, [(images, None) for images in source])
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert [module.training for module in model.modules()] == modes
    assert all(not module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("batches", [[], [torch.full((2, 3, 12, 12), float("nan"))]])
def test_without_good_images_nothing_is_changed(source, batches):
    model = strayed()
    asrnorm.confine(model, source)
    before = model[4].shift_least.clone()
    with pytest.raises(InputError):
        asrnorm.confine(model, batches)
    assert torch.equal(model[4].shift_least, before)
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_a_layer_that_is_not_used_stays_free(source):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = ASRNorm2d(3), ASRNorm2d(3)

        def forward(self, x):
            return self.used(x)

    model = Idle()
    assert asrnorm.confine(model, source) == 1
    assert model.used.limits is not None
    assert model.idle.limits is None


def test_what_has_no_learned_mean_is_refused(source):
    with pytest.raises(ConversionError):
        asrnorm.confine(nn.Sequential(nn.Conv2d(3, 4, 3), ARNorm2d(4)), source)
    with pytest.raises(ConversionError):
        asrnorm.confine(nn.DataParallel(strayed()), source)


class Branching(nn.Module):
    """Samples above a threshold take a second layer, which is called by name."""

    def __init__(self):
        super().__init__()
        self.first, self.second = ASRNorm2d(3), ASRNorm2d(3)
        self.threshold = 0.5

    def forward(self, x):
        chosen = x.mean((1, 2, 3)) > self.threshold
        return torch.cat([self.first(x[~chosen]), self.second(x=x[chosen])])


def test_layers_called_by_name_or_without_samples_are_gone_through():
    model = Branching()
    bright, dark = torch.rand(4, 3, 6, 6) + 1, torch.rand(4, 3, 6, 6) - 1
    assert asrnorm.confine(model, [bright, dark]) == 2
    once = model.first.limits
    assert asrnorm.confine(model, [bright]) == 1
    assert torch.equal(model.first.limits[0], once[0])  # not used the second time
