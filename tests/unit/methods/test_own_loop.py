"""Methods in a loop of the user's own: what their hooks take, count and say."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.methods import ADA, ERM, MADA, METHODS, RSDA, Batch, Method
from asrnorm.methods.base import is_capturable
from helpers.smooth_net import SmoothNet


def small():
    return asrnorm.create_model("digits_convnet", norm="asr", channels=(4, 8), hidden=16)


def built(name, model, images, seed=3):
    method = asrnorm.create_method(name, seed=seed)
    method.build(model, images)
    return method


@pytest.mark.parametrize("name", METHODS.names())
def test_a_pair_counts_its_own_steps(name):
    model, images, labels = small(), torch.rand(8, 3, 32, 32), torch.arange(8) % 10
    method, twin = built(name, model, images), built(name, model, images)
    for step in range(3):
        loss = method.loss(model, (images, labels))
        torch.testing.assert_close(loss, twin.loss(model, Batch(images, labels, step)), rtol=0, atol=0)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert all(p.grad.abs().sum() > 0 for p in method.parameters())


WITH_NETWORKS = [name for name in METHODS.names() if not asrnorm.create_method(name).is_built]


@pytest.mark.parametrize("name", WITH_NETWORKS)
def test_a_method_whose_networks_are_not_built_says_how(name):
    method, pair = asrnorm.create_method(name), (torch.rand(8, 3, 32, 32), torch.arange(8) % 10)
    with pytest.raises(InputError, match=r"call method\.build\(model, images\) first, and give method\.parameters\(\)"):
        method.loss(small(), pair)
    with pytest.raises(InputError, match=r"call method\.build"):
        method.load_state_dict({"trained": {}})


@pytest.mark.parametrize("name", WITH_NETWORKS)
def test_networks_of_a_method_follow_from_its_seed_and_leave_the_callers_generator_alone(name):
    model, images = small().double(), torch.rand(2, 3, 32, 32)
    before = torch.get_rng_state()
    one, same, other = (built(name, model, images, seed).parameters() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert {p.dtype for p in one} == {torch.float64}


def test_a_network_without_the_parts_is_refused_in_one_line():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    batch = torch.rand(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    with pytest.raises(
        InputError, match=r"RSC looks inside the network, and Sequential has no features, embed, classify;"
    ):
        asrnorm.create_method("rsc").loss(model, batch)
    assert torch.isfinite(asrnorm.create_method("erm").loss(model, batch))
    assert torch.isfinite(asrnorm.create_method("pgd").loss(model, batch))


def test_an_error_of_the_networks_own_is_not_taken_for_a_missing_part():
    class Broken(nn.Module):
        def features(self, x):
            return self.nothing(x)

        def embed(self, maps):
            return maps

        def classify(self, embedding):
            return embedding

    with pytest.raises(AttributeError, match="nothing"):
        asrnorm.create_method("rsc").loss(Broken(), (torch.rand(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)))


def test_a_plain_network_with_an_error_of_its_own_is_not_blamed_for_parts_it_need_not_have():
    class Broken(nn.Module):
        def forward(self, x):
            return self.nothing(x)

    with pytest.raises(AttributeError, match="nothing"):
        asrnorm.create_method("rda").loss(Broken(), (torch.rand(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)))


@pytest.mark.parametrize("name", ["ada", "me_ada", "m_ada"])
def test_a_network_without_the_parts_is_refused_when_domains_are_grown_too(name):
    pool = Pool(ImageSet(np.zeros((8, 8, 8, 3), np.uint8), np.arange(8)))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    with pytest.raises(InputError, match="looks inside the network, and Sequential has no features, embed, classify"):
        asrnorm.create_method(name).grow(model, pool, 100)


@pytest.mark.parametrize("name", METHODS.names())
def test_the_steps_of_an_own_loop_go_on_after_a_resume(name):
    model, batch = small(), (torch.rand(8, 3, 32, 32), torch.arange(8) % 10)
    method, resumed = built(name, model, batch[0]), built(name, model, batch[0], seed=4)
    resumed.seed = 3
    for _ in range(2):
        method.loss(model, batch)
    resumed.load_state_dict(method.state_dict())
    torch.testing.assert_close(resumed.loss(model, batch), method.loss(model, batch), rtol=0, atol=0)
    assert resumed.state_dict()["own_steps"] == 3


@pytest.mark.parametrize("name", ["rda", "rsda", "esda", "pgd"])
def test_images_beyond_the_unit_range_are_refused_where_pixels_are_changed(name):
    images, labels = torch.randn(4, 3, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    with pytest.raises(InputError, match=r"works on images in \[0, 1\], these are from -.*; let the model normalize"):
        asrnorm.create_method(name).loss(SmoothNet(), (images, labels))
    method = asrnorm.create_method(name)
    for _ in range(2):  # not only the first time
        with pytest.raises(InputError, match=r"works on images in \[0, 1\], these are from -"):
            method.loss(SmoothNet(), Batch(images, labels, 0))
    assert method.loss(SmoothNet(), Batch(images.sigmoid(), labels, 0)).isfinite()
    assert asrnorm.create_method("erm").loss(SmoothNet(), (images, labels)).isfinite()


@pytest.mark.parametrize("batch", [{"images": 1, "labels": 2}, torch.zeros(2, 3, 8, 8), ("a", "b"), (torch.zeros(2),)])
def test_what_is_no_pair_is_one_line(batch):
    with pytest.raises(InputTypeError, match="a batch is a pair of tensors, images and labels, or a Batch, not "):
        asrnorm.create_method("erm").loss(SmoothNet(), batch)


def test_bytes_are_refused_with_what_to_make_of_them():
    batch = (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.long), torch.arange(2))
    with pytest.raises(InputTypeError, match=r"torch\.uint8; pass \(images / 255, labels\)"):
        asrnorm.create_method("erm").loss(SmoothNet(), batch)


@pytest.mark.parametrize("name", METHODS.names())
def test_a_loss_takes_its_arguments_by_name(name):
    pair = torch.rand(8, 3, 32, 32), torch.arange(8) % 10
    model = small()
    assert built(name, model, pair[0]).loss(model=model, batch=pair).isfinite()


def test_a_method_that_nobody_lets_grow_says_so_once(caplog):
    pair = torch.rand(8, 3, 32, 32), torch.arange(8) % 10
    pool = Pool(ImageSet(np.zeros((8, 32, 32, 3), np.uint8), np.arange(8) % 10))
    options = {"interval": 2, "candidates": 2, "search_images": 8}
    grown, never = (asrnorm.create_method("rsda", **options) for _ in range(2))
    model = small()
    for step in range(6):
        if grown.is_growing(step):
            grown.grow(model, pool, step)
        grown.loss(model, pair)
    assert not caplog.records
    for _ in range(6):
        never.loss(model, pair)
    (record,) = caplog.records
    assert "RSDA grows before step 2" in record.getMessage()


class Shift(Method):
    """A method as a user writes it: hooks that know of a `Batch` and of their own state alone."""

    def __init__(self, *, size: float = 0.1) -> None:
        super().__init__()
        self.size, self.seen = size, []

    def loss(self, model, batch):
        self.seen.append(batch.step)
        return super().loss(model, batch._replace(images=batch.images + self.size))

    def state_dict(self):
        return {"size": self.size}

    def load_state_dict(self, state):
        (self.size,) = state.values()


@pytest.fixture
def shift(monkeypatch):
    monkeypatch.setitem(METHODS._entries, "shift", Shift)
    return asrnorm.create_method("shift", size=0.2)


def test_a_method_of_ones_own_takes_pairs_and_keeps_their_count(shift):
    pair = torch.rand(4, 3, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    expected = asrnorm.create_method("erm").loss(SmoothNet(), (pair[0] + 0.2, pair[1]))
    assert [shift.loss(SmoothNet(), pair) for _ in range(2)] == [expected, expected]
    assert shift.state_dict() == {"own_steps": 2, "size": 0.2}
    resumed = asrnorm.create_method("shift")
    resumed.load_state_dict(shift.state_dict())
    resumed.loss(SmoothNet(), pair)
    assert (resumed.size, resumed.seen) == (0.2, [2])


def test_a_copy_of_a_method_is_on_its_own(shift):
    pair = torch.rand(4, 3, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    twin = copy.deepcopy(shift)
    twin.loss(SmoothNet(), pair)
    assert (twin.seen, shift.seen, shift.state_dict()) == ([0], [], {"size": 0.2})


def test_a_loss_of_ones_own_is_captured_only_if_its_class_says_so():
    class Said(Shift):
        capturable = True

    class Again(Said):
        def loss(self, model, batch):
            return super().loss(model, batch)

    class Inherited(Said):
        pass

    found = {kind: is_capturable(kind()) for kind in (Method, ERM, ADA, MADA, RSDA, Shift, Said, Again, Inherited)}
    assert {kind.__name__ for kind, yes in found.items() if not yes} == {"MADA", "Shift", "Again"}
