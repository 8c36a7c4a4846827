import os

import pytest
import torch

from asrnorm.methods import ascent as ascent_graph
from asrnorm.methods.ascent import Ascent
from asrnorm.models import create_model

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # of operations without a deterministic form
CUDA = torch.device("cuda", 0)
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("norm", ["bn", "asr", "bn_test"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_batches_are_climbed_as_without_a_graph(optimizer, norm, precision, monkeypatch):
    replayed = []
    climb = ascent_graph.AscentGraph.climb
    monkeypatch.setattr(
        ascent_graph.AscentGraph, "climb", lambda self, x, y: replayed.append(len(x)) or climb(self, x, y)
    )
    model = create_model("digits_convnet", norm=norm, channels=(4, 8), hidden=16)
    model.to(CUDA, memory_format=torch.channels_last)
    images, labels = torch.rand(40, 3, 32, 32, device=CUDA), torch.randint(10, (40,), device=CUDA)
    ascent = Ascent(steps=4, lr=0.1, batch=16, optimizer=optimizer, reduction="sample", entropy_weight=1.0)
    before = [value.clone() for value in model.state_dict().values()]
    with torch.autocast("cuda", precision, enabled=precision != torch.float32):
        plain, captured = (ascent.climber(model, captured=choice) for choice in (False, True))
        for part, own in zip(images.split(16), labels.split(16), strict=True):
            found = captured(part, own)
            assert torch.equal(found, plain(part, own))
            assert not torch.equal(found, part)
    assert replayed == [16, 16]  # the last, of 8, is climbed without
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), before, strict=True))


def test_a_gpu_takes_more_images_at_once_unless_they_meet():
    images = torch.rand(1, 3, 32, 32, device=CUDA)
    sizes = {
        norm: Ascent(batch=32).piece(create_model("digits_convnet", norm=norm), images) for norm in ("bn", "bn_test")
    }
    assert sizes == {"bn": 512, "bn_test": 32}
    assert Ascent(batch=32).piece(create_model("digits_convnet", norm="bn"), images.cpu()) == 32
