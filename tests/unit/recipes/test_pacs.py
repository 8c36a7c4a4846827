"""The recipes of PACS have the numbers of the paper, and steps that go with the domains."""

import pytest

from asrnorm.core.errors import InputError
from asrnorm.recipes import recipe
from asrnorm.recipes.pacs import NUM_TRAIN


@pytest.mark.parametrize(("source", "epoch"), [("photo", 11), ("art_painting", 14), ("cartoon", 16), ("sketch", 27)])
def test_pacs_from_one_source_is_the_papers_but_for_what_source_images_chose(source, epoch):
    config = recipe("pacs.rsc_asr", source=source)
    optim = config.optim
    assert (config.steps, config.batch_size, config.evaluate_every) == (30 * epoch, 64, epoch)  # 128 with mirror images
    assert (optim.name, optim.lr, optim.momentum, optim.nesterov) == ("sgd", 0.01, 0.9, False)
    assert (optim.schedule, optim.step_at, optim.step_factor) == ("step", 0.8, 0.1)
    assert optim.weight_decay == 5e-4
    assert (config.selection, config.augment, config.layers) == ("source-val", "pacs", "early")
    assert config.weights == "weights/resnet18_imagenet_backbone_fp16.safetensors"
    assert config.norm.args == {"gated_rescale": True}
    assert config.method.args == {"version": "v3", "interval": 10 * epoch}
    assert config.suite.args == {"source": source}
    assert recipe("pacs.erm_asr", source=source).batch_size == 128


@pytest.mark.parametrize(("target", "epoch"), [("photo", 58), ("art_painting", 55), ("cartoon", 53), ("sketch", 42)])
def test_pacs_with_one_domain_left_out_counts_the_other_three(target, epoch):
    config = recipe("pacs.rsc_asr", target=target)
    assert config.steps == 30 * epoch
    assert config.suite.args == {"target": target}
    assert recipe("pacs.rsc_asr", target=target, scale="short").steps == 10 * epoch


def test_bn_stays_where_it_is_in_the_pretrained_network():
    assert {recipe(f"pacs.erm_{norm}").layers for norm in ("bn", "bn_test", "bin", "sn")} == {"all"}
    assert {recipe(f"pacs.erm_{norm}").layers for norm in ("asr", "as", "ar", "in")} == {"early"}


@pytest.mark.data
@pytest.mark.parametrize("domain", sorted(NUM_TRAIN))
def test_the_counts_behind_the_steps_are_those_of_the_published_lists(domain):
    from asrnorm.data import create_suite

    suite = create_suite("pacs", source=domain)
    if suite.missing:
        pytest.skip("PACS is not under ASRNORM_DATA")
    assert len(suite.train) == NUM_TRAIN[domain]


def test_a_domain_chosen_with_set_moves_the_steps_too():
    assert recipe("pacs.erm_bn", **{"suite.source": "sketch"}) == recipe("pacs.erm_bn", source="sketch")
    assert recipe("pacs.erm_bn", source="photo,sketch").steps == 30 * 39
    assert recipe("pacs.erm_bn", source=["photo", "sketch"]) == recipe("pacs.erm_bn", source="photo,sketch")
    with pytest.raises(InputError, match=r"source= and suite\.source= are both given"):
        recipe("pacs.erm_bn", source="photo", **{"suite.source": "sketch"})


def test_steps_that_are_set_win():
    config = recipe("pacs.erm_bn", source="sketch", steps=5, **{"optim.lr": "1e-2", "method.x": "1"})
    assert (config.steps, config.optim.lr, config.method.args) == (5, 0.01, {"x": 1})
