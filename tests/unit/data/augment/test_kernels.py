"""When the Triton kernels run, and that they give the bits of the tensor operations."""

import builtins
import warnings

import pytest
import torch

from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple, create_augmentation, draw_tuples, resize
from asrnorm.data.augment import base as backend
from asrnorm.data.augment.pacs import PacsDraw, apply_unfused, draw_pacs
from asrnorm.data.augment.rsda import apply_unread
from asrnorm.methods.transformations import transform
from helpers.interpreter import interpret
from helpers.pictures import pictures

SHAPES = [((227, 227), (222, 222)), ((64, 64), (64, 64)), ((50, 300), (40, 270)), ((1, 3), (2, 2))]
CASES = {
    "interpreted_pacs": 3 * 24 + 8 * 8 + 15 + 2,
    "interpreted_resize": 6 * 8 + 2,
    "interpreted_rsda": sum(len(operation.levels) for operation in RSDA_OPERATIONS) + 27 + 26,
}


class OnCuda:
    """As much of a tensor as the choice looks at."""

    device = torch.device("cuda", 0)

    def __init__(self, side=32, dtype=torch.uint8):
        self.shape = (4, 3, side, side)
        self.dtype = dtype


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(backend.torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.delenv("ASRNORM_BACKEND", raising=False)
    backend._load.cache_clear()
    yield monkeypatch
    backend._load.cache_clear()


def test_small_images_on_a_gpu_take_the_kernel(gpu):
    pytest.importorskip("triton")
    assert backend.find_fused(OnCuda(32)).__name__ == "apply_fused"
    assert backend.find_fused(OnCuda(227)) is None


@pytest.mark.parametrize(
    ("images", "size", "fits"),
    [
        (OnCuda(227), (222, 222), True),
        (OnCuda(227, torch.float32), (222, 222), True),
        (OnCuda(64), (64, 200), True),
        (OnCuda(227, torch.float64), (222, 222), False),
        (OnCuda(227), (222, 100), False),  # too many taps
        (OnCuda(227), (2048, 2049), False),  # too large a sum
        (OnCuda(0), (2, 2), False),
        (OnCuda(8), (8, 0), False),
    ],
)
def test_pacs_takes_its_kernels_where_images_and_result_fit(gpu, images, size, fits):
    pytest.importorskip("triton")
    assert (backend.find_fused_pacs(images, size) is not None) == fits


def test_the_environment_can_ask_for_the_reference(gpu):
    gpu.setenv("ASRNORM_BACKEND", "reference")
    assert backend.find_fused(OnCuda()) is None
    assert backend.find_fused_pacs(OnCuda(), (30, 30)) is None
    assert backend.find_fused_resize(OnCuda(), (30, 30)) is None


def test_whole_images_are_resized_by_a_kernel_unless_they_shrink_much(gpu):
    pytest.importorskip("triton")
    assert backend.find_fused_resize(OnCuda(227), (222, 222)).__name__ == "resize_fused"
    assert backend.find_fused_resize(OnCuda(227), (100, 222)) is None
    assert backend.find_fused_resize(OnCuda(8), (8, 0)) is None


def test_without_triton_there_is_one_warning_that_says_why(gpu):
    whole = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "asrnorm.kernels":
            raise ModuleNotFoundError("No module named 'triton'")
        return whole(name, *args, **kwargs)

    gpu.setattr(builtins, "__import__", refuse)
    with pytest.warns(RuntimeWarning, match="No module named 'triton'"):
        assert backend.find_fused(OnCuda()) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backend.find_fused(OnCuda()) is None
        assert backend.find_fused_pacs(OnCuda(), (30, 30)) is None


def test_an_old_gpu_is_named(gpu):
    gpu.setattr(backend.torch.cuda, "get_device_capability", lambda device: (6, 1))
    with pytest.warns(RuntimeWarning, match="6.1"):
        assert backend.find_fused(OnCuda()) is None


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_give_the_bits_of_the_tensor_operations(name):
    assert int(interpret(name)) == CASES[name]


def to_gpu(drawn):
    return type(drawn)(*(value.cuda() for value in drawn))


def every_color(count):
    """Noise of any bytes, different in each image."""
    seeded = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, 227, 227), generator=seeded).to(torch.uint8)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_pacs_on_a_gpu_gives_the_same_bits(shape):
    image_size, size = shape
    images, generator = pictures(*image_size), torch.Generator().manual_seed(0)
    fused = backend.find_fused_pacs(images.cuda(), size)
    assert fused is not None
    for _ in range(10):
        drawn = draw_pacs(len(images), image_size, generator)
        expected = apply_unfused(images, drawn, size)
        for order in (torch.contiguous_format, torch.channels_last):
            moved = images.cuda().contiguous(memory_format=order)
            assert torch.equal(fused(moved, to_gpu(drawn), size).cpu(), expected)


@pytest.mark.gpu
def test_pacs_on_a_gpu_gives_the_same_bits_over_many_draws_and_colors():
    generator = torch.Generator().manual_seed(1)
    for count in (128, 96, 1):
        images = every_color(count).cuda()
        drawn = to_gpu(draw_pacs(count, (227, 227), generator))
        fused = backend.find_fused_pacs(images, (222, 222))(images, drawn, (222, 222))
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
    images = pictures(40, 40).cuda()
    drawn = draw_pacs(9, (40, 40), torch.Generator().manual_seed(3))
    shifted = PacsDraw(*(value.cuda()[1:] for value in drawn))
    fused = backend.find_fused_pacs(images, (36, 36))(images, shifted, (36, 36))
    assert torch.equal(fused, apply_unfused(images, shifted, (36, 36)))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_resize_on_a_gpu_gives_the_same_bits(shape):
    image_size, size = shape
    images = pictures(*image_size)
    assert backend.find_fused_resize(images.cuda(), size) is not None
    for order in (torch.contiguous_format, torch.channels_last):
        result = resize(images.cuda().contiguous(memory_format=order), size)
        assert torch.equal(result.cpu(), resize(images, size))


@pytest.mark.gpu
def test_a_gpu_transforms_floats_in_one_kernel(monkeypatch):
    images = (pictures().cuda().float() / 255).contiguous(memory_format=torch.channels_last)
    for op, level in zip(*draw_tuples(40, torch.Generator().manual_seed(0)), strict=True):
        fused = transform(images, op.cuda(), level.cuda())
        with monkeypatch.context() as patch:
            patch.setenv("ASRNORM_BACKEND", "reference")
            assert torch.equal(fused, transform(images, op.cuda(), level.cuda()))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (64, 64), (3, 50), (1, 1)])
def test_rsda_on_a_gpu_gives_the_same_bits(size):
    images = pictures(*size)
    assert backend.find_fused(images.cuda()) is not None
    generator = torch.Generator().manual_seed(0)
    for count in (1, len(images)):
        for _ in range(40):
            ops, levels = draw_tuples(count, generator)
            if count == 1:
                ops, levels = ops[0], levels[0]
            expected = apply_unread(images, ops, levels)
            for order in (torch.contiguous_format, torch.channels_last):
                moved = images.cuda().contiguous(memory_format=order)
                assert torch.equal(apply_tuple(moved, ops.cuda(), levels.cuda()).cpu(), expected)
