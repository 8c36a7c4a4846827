import pytest
import torch

from asrnorm.core.frozen_eval import evaluating
from asrnorm.data.augment import apply_tuple, draw_tuples
from asrnorm.data.augment.base import to_bytes, to_float
from asrnorm.methods.transformations import SearchGraph, count_wrong_under, transform
from asrnorm.models import create_model

BYTES = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_byte_survives_the_way_to_float_and_back(dtype):
    exact = {torch.float32, torch.float64, torch.float16}
    back = to_bytes(to_float(BYTES, dtype))
    assert (back == BYTES).all() if dtype in exact else (back.int() - BYTES.int()).abs().max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_operations_on_bytes(dtype):
    pixels = torch.randint(0, 256, (4, 3, 5, 7), dtype=torch.uint8)
    ops, levels = torch.tensor([1, 7, 5]), torch.tensor([19, 3, 0])
    changed = transform(to_float(pixels, dtype), ops, levels)
    assert changed.dtype == dtype
    assert torch.equal(to_bytes(changed), apply_tuple(pixels, ops, levels))


def test_the_identity_gives_back_the_images_themselves():
    images = torch.rand(2, 3, 4, 4)  # not bytes over 255: rounding would show
    assert transform(images, torch.tensor([-1, -1]), torch.tensor([0, 0])) is images


CUDA = torch.device("cuda", 0)


def test_misses_are_counted_over_all_batches():
    model = create_model("digits_convnet", norm="in", channels=(2, 4), hidden=8).eval()
    images = torch.randint(256, (10, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        predicted = model(images.float() / 255).argmax(1)
    labels = predicted.clone()
    labels[:4] = (labels[:4] + 1) % 10
    identity, level = torch.tensor([-1]), torch.tensor([0])
    assert [int(count_wrong_under(model, images, labels, identity, level, batch)) for batch in (3, 10, 99)] == [4, 4, 4]


@pytest.mark.gpu
@pytest.mark.parametrize("norm", ["bn", "asr"])
def test_a_graph_counts_what_tuples_read_on_the_cpu_give(norm):
    model = create_model("digits_convnet", norm=norm, channels=(4, 8), hidden=16).to(CUDA)
    images = torch.randint(256, (50, 3, 32, 32), dtype=torch.uint8, device=CUDA)
    labels = torch.randint(10, (50,), device=CUDA)
    ops, levels = draw_tuples(25, torch.Generator().manual_seed(0))
    with evaluating(model), torch.no_grad():
        graph = SearchGraph(model, images, labels, batch=20, length=3, most=10)
        assert graph.is_captured
        for change in range(2):  # its weights may change in place
            model.get_parameter("fc3.weight").add_(change)
            plain = [
                count_wrong_under(model, images, labels, *pair, 20).item() for pair in zip(ops, levels, strict=True)
            ]
            assert graph.count_wrong(ops, levels).tolist() == plain
            assert len(set(plain)) > 1
