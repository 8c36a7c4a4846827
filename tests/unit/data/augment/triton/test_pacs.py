import pytest
import torch

from asrnorm.data.augment import create_augmentation
from asrnorm.data.augment.pacs import PacsDraw, apply_unfused, draw_pacs
from helpers.interpreter import interpret
from helpers.pictures import pictures


def test_the_kernels_give_the_bits_of_the_tensor_operations():
    assert int(interpret("interpreted_pacs")) == 3 * 24 + 8 * 8 + 15 + 2


def place(drawn):
    return type(drawn)(*(value.cuda() for value in drawn))


def every_color(count):
    """Noise of any bytes, different in each image."""
    seeded = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, 227, 227), generator=seeded).to(torch.uint8)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [((227, 227), (222, 222)), ((64, 64), (64, 64)), ((50, 300), (40, 270)), ((1, 3), (2, 2))]
)
def test_a_gpu_gives_the_same_bits_in_kernels(shape):
    from asrnorm.data.augment.backend import find_fused_pacs

    image_size, size = shape
    images, generator = pictures(*image_size), torch.Generator().manual_seed(0)
    fused = find_fused_pacs(images.cuda(), size)
    assert fused is not None
    for _ in range(10):
        drawn = draw_pacs(len(images), image_size, generator)
        expected = apply_unfused(images, drawn, size)
        for order in (torch.contiguous_format, torch.channels_last):
            placed = images.cuda().contiguous(memory_format=order)
            assert torch.equal(fused(placed, place(drawn), size).cpu(), expected)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits_over_many_draws_and_colors():
    from asrnorm.data.augment.backend import find_fused_pacs

    generator = torch.Generator().manual_seed(1)
    for count in (128, 96, 1):
        images = every_color(count).cuda()
        drawn = place(draw_pacs(count, (227, 227), generator))
        fused = find_fused_pacs(images, (222, 222))(images, drawn, (222, 222))
        assert torch.equal(fused, apply_unfused(images, drawn, (222, 222)))


@pytest.mark.gpu
def test_a_captured_step_replays_new_draws_on_floats(monkeypatch):
    images = every_color(16).cuda().float() / 255
    generator = torch.Generator().manual_seed(2)
    augmentation = create_augmentation("pacs")
    batches = [augmentation.draw(16, (227, 227), generator) for _ in range(6)]
    fixed = {name: value.cuda() for name, value in batches[0].items()}
    augmentation.apply(images, fixed)  # compiles, and makes the table
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = augmentation.apply(images, fixed)
    monkeypatch.setenv("ASRNORM_BACKEND", "reference")
    for batch in batches:
        for name, value in batch.items():
            fixed[name].copy_(value)
        graph.replay()
        assert torch.equal(result, augmentation.apply(images, fixed))


@pytest.mark.gpu
def test_draws_at_any_address_are_read():
    from asrnorm.data.augment.backend import find_fused_pacs

    images = pictures(40, 40).cuda()
    drawn = draw_pacs(9, (40, 40), torch.Generator().manual_seed(3))
    shifted = PacsDraw(*(value.cuda()[1:] for value in drawn))
    fused = find_fused_pacs(images, (36, 36))(images, shifted, (36, 36))
    assert torch.equal(fused, apply_unfused(images, shifted, (36, 36)))
