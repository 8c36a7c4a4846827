import numpy as np
import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.config import Choice
from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.methods import Batch, create_method
from asrnorm.methods.base import is_capturable
from asrnorm.methods.consistency import Consistency, jensen_shannon
from asrnorm.training import run
from helpers import tiny_run
from helpers.tiny_run import ToyNet, kept_pool, model_bytes, tiny_config


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


def make_batch(count=6, step=3):
    seeded = torch.Generator().manual_seed(0)
    images = torch.rand((count, 3, 8, 8), generator=seeded)
    views = (images, torch.rand((count, 3, 8, 8), generator=seeded), torch.rand((count, 3, 8, 8), generator=seeded))
    return Batch(images, torch.arange(count) % 3, step, views=views)


@pytest.mark.parametrize("views", [2, 3])
def test_the_divergence_is_that_of_numpy(views):
    logits = torch.randn((views, 7, 5), generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 4
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(-1, keepdims=True)
    entropy = -(p * np.log(p)).sum(-1)
    mean = p.mean(0)
    expected = -(mean * np.log(mean)).sum(-1) - entropy.mean(0)  # H(mean) - mean of H
    assert float(jensen_shannon(logits.unbind())) == pytest.approx(expected.mean(), abs=1e-12)


def test_predictions_that_agree_or_are_certain_have_a_finite_divergence_and_gradient():
    certain = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    assert float(jensen_shannon([certain, certain]).detach()) == 0
    divergence = jensen_shannon([certain, certain.flip(1)])
    assert float(divergence.detach()) == pytest.approx(np.log(2))
    divergence.backward()
    assert bool(certain.grad.isfinite().all())


@pytest.mark.parametrize(("supervise", "count"), [("all", 3), ("first", 1)])
def test_the_loss_is_the_mean_of_the_supervised_views_and_the_weighted_divergence(supervise, count):
    torch.manual_seed(0)
    model, batch = ToyNet(), make_batch()
    method = Consistency(views=["none", "augmix", "augmix"], weight=3.0, supervise=supervise, label_smoothing=0.1)
    logits = [model(view) for view in batch.views]
    entropy = sum(F.cross_entropy(own, batch.labels, label_smoothing=0.1) for own in logits[:count]) / count
    expected = entropy + 3 * jensen_shannon(logits)
    assert float(method.loss(model, batch).detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_mixup_mixes_images_and_labels_of_all_views_alike():
    torch.manual_seed(0)
    model, batch = ToyNet(), make_batch()
    method = Consistency(weight=3.0, supervise="all", mixup=0.7)
    drawn = method.draw(batch.step, 6)
    part, other = float(drawn["mixup_part"]), drawn["mixup_order"].argsort()
    assert 0 < part < 1
    logits = [model(part * view + (1 - part) * view[other]) for view in batch.views]
    both = [(part, batch.labels), (1 - part, batch.labels[other])]
    entropy = sum(share * F.cross_entropy(own, labels) for own in logits for share, labels in both) / 3
    expected = entropy + 3 * jensen_shannon(logits)
    assert float(method.loss(model, batch).detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert method.draw(4, 6)["mixup_part"] != drawn["mixup_part"]


def test_another_method_computes_its_own_loss_of_each_view():
    torch.manual_seed(0)
    model, batch = ToyNet(), make_batch()
    other, method = create_method("rda", seed=4), Consistency(over="rda", supervise="all", weight=0.0)
    method.seed = 4
    expected = sum(float(other.loss(model, batch._replace(images=view, views=())).detach()) for view in batch.views) / 3
    assert float(method.loss(model, batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_in_a_loop_of_ones_own_views_are_made_from_the_images():
    torch.manual_seed(0)
    model, images, labels = ToyNet(), make_batch().images, make_batch().labels
    same = create_method("consistency", views=["none", "none"], weight=5.0, supervise="all")
    plain = float(F.cross_entropy(model(images), labels).detach())
    assert float(same.loss(model, (images, labels)).detach()) == pytest.approx(plain, rel=1e-5)
    method = create_method("consistency", seed=1, views=["none", "photometric"])
    losses = [float(method.loss(model, Batch(images, labels, step)).detach()) for step in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_part_of_a_batch_has_the_views_of_the_whole():
    torch.manual_seed(0)
    model, batch = ToyNet(), make_batch()._replace(views=())
    method = Consistency(views=["none", "photometric"], weight=1.0)
    parts = [
        Batch(batch.images[own], batch.labels[own], batch.step, own.start, 6)
        for own in (World(rank, 2).share(6) for rank in range(2))
    ]
    whole = sum(float(method.loss(model, part).detach()) for part in parts) / 2
    assert float(method.loss(model, batch).detach()) == pytest.approx(whole, rel=1e-5)
    with pytest.raises(InputError):
        Consistency(views=["none", "fourier"]).loss(model, parts[0])


def test_what_the_trainer_sets_reaches_the_other_method():
    method = Consistency(over={"name": "ada", "rounds": 2, "interval": 10})
    method.seed, method.world, method.capture, method.on_progress = 5, World(1, 2), True, print
    assert (method.over.seed, method.over.world, method.over.capture) == (5, World(1, 2), True)
    assert method.over.on_progress is print
    del method.on_progress
    method.on_progress(0.5)
    assert [step for step in range(40) if method.is_growing(step)] == [10, 20]
    assert is_capturable(method)
    assert not is_capturable(Consistency(over={"name": "toy_noise"}))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"views": ["none"]}, InputError),
        ({"views": "augmix"}, InputError),
        ({"views": 3}, InputError),
        ({"views": ["none", "agmix"]}, UnknownNameError),
        ({"over": "emr"}, UnknownNameError),
        ({"over": {"rounds": 3}}, InputError),
        ({"over": {"name": "ada", "round": 3}}, UnknownNameError),
        ({"over": "consistency"}, InputError),
        ({"over": 3}, InputError),
        ({"over": {1: 2}}, InputError),
        ({"over": {"name": "ada", 1: 2}}, UnknownNameError),
        ({"over": "rda", "label_smoothing": 0.1}, InputError),
        ({"weight": -1.0}, InputError),
        ({"mixup": -1.0}, InputError),
        ({"over": "rda", "mixup": 1.0}, InputError),
        ({"supervise": "second"}, InputError),
    ],
)
def test_wrong_options_are_refused(options, error):
    with pytest.raises(error):
        create_method("consistency", **options)


@pytest.mark.parametrize("over", [{"name": "rsda", "interval": 7, "candidates": 4}, "toy_grow"])
def test_a_resumed_run_over_a_method_that_grows_ends_in_the_same_bytes(over, tmp_path):
    args = {"over": over, "views": ["none", ["photometric", "fourier"]], "weight": 2.0, "supervise": "all"}
    config = tiny_config(method=Choice(name="consistency", args=args), augment="cifar", steps=16, checkpoint_every=6)
    with kept_pool():
        run(config, tmp_path)
    whole = model_bytes(tmp_path)
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):
        (tmp_path / name).unlink()
    run(config, tmp_path)
    assert model_bytes(tmp_path) == whole
