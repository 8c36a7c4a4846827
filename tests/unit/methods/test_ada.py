import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import DivergenceError, InputError, UnknownNameError
from asrnorm.methods import ADA, create_method
from asrnorm.methods.ada import choose_rows
from asrnorm.methods.ascent import entropy
from asrnorm.models import create_model
from asrnorm.norms import NORMS
from helpers.smooth_net import SmoothNet, assert_untouched, everything, random_pool

SMALL = {"interval": 2, "ascent_steps": 2, "ascent_batch": 4, "ascent_lr": 4.0}


def grown(pool, start):
    return pool.images(torch.arange(start, len(pool)))


@given(interval=st.integers(1, 30), rounds=st.integers(0, 8))
def test_rounds_come_at_the_multiples_of_the_interval(interval, rounds):
    method = create_method("ada", interval=interval, rounds=rounds)
    due = [step for step in range(300) if method.is_growing(step)]
    assert due == [interval * (r + 1) for r in range(rounds)]


@pytest.mark.parametrize(
    ("growth", "sizes"),
    [("volpi", [18, 24, 30]), ("me_ada", [24, 48, 96]), ("source", [24, 36, 48]), ("m_ada", [24, 30, 34])],
)
def test_the_pool_grows_by_the_rule(growth, sizes):
    method, pool, model = create_method("ada", growth=growth, count=6, **SMALL), random_pool(12), SmoothNet()
    for step, size in zip((2, 4, 6), sizes, strict=True):
        log = method.grow(model, pool, step)
        assert len(pool) == size == log["pool"]
    assert pool.num_source == 12


@pytest.mark.parametrize("growth", ["volpi", "me_ada", "source", "m_ada"])
def test_generated_images_are_the_ends_of_the_ascent_with_their_labels(growth):
    method = create_method("ada", growth=growth, count=7, seed=3, **SMALL)
    pool, model = random_pool(12), SmoothNet()
    for step in (2, 4):
        rows, before = method.starting_rows(pool, step), len(pool)
        originals, labels = pool.images(rows), pool.labels[rows]
        method.grow(model, pool, step)
        assert torch.equal(pool.labels[before:], labels)
        assert torch.equal(grown(pool, before), method.ascent.ascend(model, originals, labels).float())


def test_the_log_tells_how_far_the_images_went():
    method, pool, model = create_method("ada", growth="source", **SMALL), random_pool(10), SmoothNet()
    log = method.grow(model, pool, 2)
    change = grown(pool, 10) - pool.images(torch.arange(10))
    size = pytest.approx(change.square().mean().sqrt().item(), rel=1e-5)
    unmoved = (change.abs().amax((1, 2, 3)) < 0.5 / 255).double().mean().item()
    assert log == {"grown": 10, "pool": 20, "change": size, "unmoved": unmoved}
    assert log["change"] > 0.01


@pytest.mark.parametrize(("lr", "unmoved"), [(1e-9, 1.0), (1e4, 0.0)])
def test_the_log_tells_how_many_images_stayed_where_they_were(lr, unmoved):
    method = create_method("ada", interval=1, ascent_steps=2, ascent_batch=4, ascent_lr=lr, clip=True, quantize=True)
    assert method.grow(SmoothNet(), random_pool(10), 1)["unmoved"] == unmoved


def test_quantized_images_are_kept_as_levels():
    method, pool = create_method("ada", quantize=True, **SMALL), random_pool(5)
    log = method.grow(SmoothNet(), pool, 2)
    assert pool.parts[0][0].dtype == torch.uint8
    assert 0 < log["change"] < 1


@pytest.mark.parametrize("name", ["ada", "me_ada", "m_ada"])
@pytest.mark.parametrize("kept", [{"quantize": True}, {"clip": True}, {}])
def test_an_ascent_that_ends_nowhere_grows_nothing(name, kept):
    method, pool, model = create_method(name, **SMALL, **kept), random_pool(5), SmoothNet()
    with torch.no_grad():
        next(model.parameters()).mul_(float("inf"))
    with pytest.raises(DivergenceError, match=r"images that are not finite; try a lower method.ascent_lr"):
        method.grow(model, pool, 2)
    assert len(pool) == 5


@pytest.mark.parametrize("name", ["ada", "me_ada", "m_ada"])
def test_growing_leaves_the_model_as_it_was(name):
    options = {"wae_epochs": 1} if name == "m_ada" else {}
    method, pool, model = create_method(name, **SMALL, **options), random_pool(9), SmoothNet(norm=True)
    model(pool.images(torch.arange(4)).double()).sum().backward()
    before = everything(model)
    method.grow(model, pool, 2)
    assert_untouched(model, before)
    assert torch.isfinite(grown(pool, 9)).all()


@pytest.mark.parametrize("name", ["ada", "me_ada", "m_ada"])
def test_a_restored_method_goes_on_as_the_first_would_have(name):
    options = SMALL | ({"wae_epochs": 1} if name == "m_ada" else {})
    model = SmoothNet()
    method, pool = create_method(name, seed=7, **options), random_pool(12)
    method.grow(model, pool, 2)
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    other, same_pool = create_method(name, seed=7, **options), random_pool(12)
    other.load_state_dict(torch.load(file, weights_only=True))
    same_pool.append(*pool.parts[0])
    torch.rand(100)  # nothing may hang on torch's own generator
    for each, its_pool in ((method, pool), (other, same_pool)):
        each.grow(model, its_pool, 4)
    assert torch.equal(grown(pool, 12), grown(same_pool, 12))
    torch.testing.assert_close(method.state_dict(), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("norm", NORMS.names())
def test_it_works_with_every_norm(norm):
    model = create_model("digits_convnet", norm=norm, channels=(3, 4), hidden=8)
    method, pool = create_method("ada", growth="source", **SMALL), random_pool(5, size=32)
    before = everything(model)
    log = method.grow(model, pool, 2)
    assert_untouched(model, before)
    assert log["change"] > 0
    assert torch.isfinite(grown(pool, 5)).all()


def test_another_seed_draws_other_rows():
    pool = random_pool(30)
    pool.append(torch.zeros(30, 3, 4, 4), torch.zeros(30, dtype=torch.long))
    one, two = (create_method("ada", count=20, seed=seed).starting_rows(pool, 200) for seed in (0, 1))
    assert not torch.equal(one, two)


def test_another_round_draws_other_rows():
    pool = random_pool(30)
    pool.append(torch.zeros(30, 3, 4, 4), torch.zeros(30, dtype=torch.long))
    method = create_method("ada", count=20, interval=100)
    one, two = (method.starting_rows(pool, step) for step in (200, 300))
    assert not torch.equal(one, two)
    assert torch.equal(one, method.starting_rows(pool, 200))


def test_wrong_options_are_answered_before_any_work():
    with pytest.raises(UnknownNameError, match="did you mean 'volpi'"):
        create_method("ada", growth="volpy")
    with pytest.raises(UnknownNameError, match="did you mean 'penalty'"):
        create_method("ada", penaltie=1.0)
    with pytest.raises(InputError, match="interval must be at least 1"):
        create_method("ada", interval=0)


OPTIONS = {"interval": 1, "ascent_steps": 20, "ascent_lr": 0.3, "reduction": "sample"}


def grown_images(method):
    pool = random_pool(40)
    method.grow(SmoothNet(), pool, 1)
    return pool.images(torch.arange(40, 80)).double()


def test_the_entropy_of_grown_images_is_higher_than_ada_leaves_it():
    ada = grown_images(create_method("ada", growth="me_ada", clip=True, **OPTIONS))
    me_ada = grown_images(create_method("me_ada", **OPTIONS))
    with torch.no_grad():
        first, second = (entropy(SmoothNet()(images)).mean() for images in (ada, me_ada))
    assert second > first + 0.05
    assert me_ada.min() >= 0
    assert me_ada.max() <= 1


def test_without_weight_it_is_ada():
    ada = grown_images(create_method("ada", growth="me_ada", clip=True, **OPTIONS))
    assert torch.equal(ada, grown_images(create_method("me_ada", entropy_weight=0.0, **OPTIONS)))


def test_the_defaults_are_the_original_protocol():
    method = create_method("me_ada")
    assert isinstance(method, ADA)
    assert (method.rounds, method.interval, method.growth) == (3, 100, "me_ada")
    assert (method.ascent.steps, method.ascent.lr, method.ascent.penalty) == (15, 1.0, 1.0)
    assert method.ascent.clip


def rows(growth, *, size, num_source=10, round_number=1, count=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return choose_rows(
        growth, num_source=num_source, size=size, round_number=round_number, count=count, generator=generator
    )


def test_volpi_takes_the_first_of_the_source_and_later_a_draw_of_all():
    assert rows("volpi", size=10).tolist() == [0, 1, 2, 3]
    assert rows("volpi", size=10, count=99).tolist() == list(range(10))
    later = rows("volpi", size=100, count=50)
    assert len(set(later.tolist())) == 50
    assert later.max() >= 10
    assert not torch.equal(later, rows("volpi", size=100, count=50, seed=1))


def test_me_ada_takes_all_and_source_the_source():
    assert rows("me_ada", size=25).tolist() == list(range(25))
    assert rows("source", size=25).tolist() == list(range(10))


@given(num_source=st.integers(1, 60), rounds=st.integers(1, 5), seed=st.integers(0, 99))
def test_m_ada_takes_an_rth_of_the_number_and_of_these_an_rth_from_the_source(num_source, rounds, seed):
    size = num_source
    for round_number in range(1, rounds + 1):
        chosen = rows("m_ada", size=size, num_source=num_source, round_number=round_number, seed=seed)
        number = num_source // round_number
        assert len(chosen) == len(set(chosen.tolist())) == number
        assert int((chosen < num_source).sum()) == number // round_number
        assert number == 0 or 0 <= chosen.min() <= chosen.max() < size
        size += number


@pytest.mark.parametrize("growth", ["volpi", "m_ada"])
def test_draws_are_a_function_of_the_generator(growth):
    one, two = (rows(growth, size=30, round_number=2, seed=5) for _ in range(2))
    assert torch.equal(one, two)


def test_m_ada_draws_its_grown_images_from_all_domains():
    settings = {"num_source": 60, "size": 180, "round_number": 3, "count": 0}
    one, other = (choose_rows("m_ada", generator=torch.Generator().manual_seed(s), **settings) for s in (0, 1))
    grown = one[one >= 60]
    assert len(grown) == len(set(grown.tolist())) == 20 - 6
    assert grown.min() < 120 <= grown.max()
    assert set(grown.tolist()) != set(other[other >= 60].tolist())
