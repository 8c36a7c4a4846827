"""DropBlock against a loop over seeds, and the share that it drops."""

import pytest
import torch
import torch.nn.functional as F

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from asrnorm.methods.dropblock import find_last_stages, keep_blocks
from helpers.smooth_net import SmoothNet, random_images


def keep_by_loop(noise, share, b):
    n, c, h, w = noise.shape
    gamma = share / b**2 * h * w / ((h - b + 1) * (w - b + 1))
    mask = torch.ones(n, c, h, w)
    for i in range(n):
        for j in range(c):
            for y in range(h - b + 1):
                for x in range(w - b + 1):
                    if noise[i, j, y, x] < gamma:
                        mask[i, j, y : y + b, x : x + b] = 0
    return mask


@pytest.mark.parametrize("block_size", [1, 2, 3, 5])
def test_a_mask_is_that_of_a_loop_over_seeds(block_size):
    noise = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(keep_blocks(noise, torch.tensor(0.3), block_size), keep_by_loop(noise, 0.3, block_size))


@pytest.mark.parametrize(("size", "block_size"), [(14, 5), (7, 3)])
def test_about_the_asked_share_is_dropped(size, block_size):
    noise = torch.rand(60, 40, size, size, generator=torch.Generator().manual_seed(0))
    dropped = 1 - keep_blocks(noise, torch.tensor(0.05), block_size).mean().item()
    assert 0.045 < dropped < 0.055  # blocks may overlap


def test_the_last_map_of_a_network_without_stages_is_masked_and_scaled():
    (images, labels), model = random_images(6, size=8), SmoothNet(size=8)
    method = asrnorm.create_method("dropblock", drop=0.4, block_size=2, seed=1)
    noise = torch.rand(images.shape, generator=method.generator(3, "dropblock.maps"))
    mask = keep_by_loop(noise, 0.4, 2).double()
    expected = F.cross_entropy(model(images * mask * mask.numel() / mask.sum()), labels)
    torch.testing.assert_close(method.loss(model, Batch(images, labels, 3)), expected)


@pytest.mark.parametrize("name", ["resnet18", "wrn_16_4"])
def test_every_block_of_the_last_two_stages_has_masks_of_its_own(name):
    model = asrnorm.create_model(name, num_classes=4)
    seen = {}
    stages = find_last_stages(model)
    for stage in stages:
        for block in stage:
            block.register_forward_hook(lambda layer, _inputs, output: seen.update({layer: output}))
    method = asrnorm.create_method("dropblock", drop=0.3)
    method.loss(model, Batch(torch.rand(2, 3, 96, 96), torch.tensor([0, 1])))
    assert len(seen) == sum(map(len, stages)) == 4
    assert all(not block._forward_hooks or len(block._forward_hooks) == 1 for stage in stages for block in stage)


def test_it_is_plain_training_at_the_start_of_a_run_and_grows_linearly():
    (images, labels), model = random_images(6), SmoothNet()
    method = asrnorm.create_method("dropblock", drop=0.2)
    method.total_steps = 10
    expected = F.cross_entropy(model(images), labels)
    torch.testing.assert_close(method.loss(model, Batch(images, labels, 0)), expected)
    assert [method.share(step) for step in (0, 5, 10, 20)] == pytest.approx([0, 0.1, 0.2, 0.2])


@pytest.mark.parametrize("option", [{"drop": 1.0}, {"block_size": 0}, {"early_share": 2.0}])
def test_numbers_out_of_range_are_refused(option):
    with pytest.raises(InputError, match="dropblock: "):
        asrnorm.create_method("dropblock", **option)
