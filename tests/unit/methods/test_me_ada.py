import torch

from asrnorm.methods import ADA, create_method
from asrnorm.methods.ascent import entropy
from helpers.smooth_net import SmoothNet, random_pool

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
