import pytest
import torch

from asrnorm.data.augment import draw_tuples
from asrnorm.methods.frozen_eval import evaluating
from asrnorm.methods.transformations import SearchGraph, count_wrong_under
from asrnorm.models import create_model

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
