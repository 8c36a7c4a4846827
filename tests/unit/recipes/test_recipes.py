"""Recipes have the numbers of the paper and of the protocols that its tables copy."""

from dataclasses import replace

import pytest

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.core.errors import InputError
from asrnorm.recipes import RECIPES, recipe
from asrnorm.recipes.base import SuiteRecipes, Variant, join_names, read_table, register_suite
from asrnorm.recipes.erm import CIFAR_EPOCH, PACS_BATCH, PACS_NUM_TRAIN, SUITES


@pytest.mark.parametrize("norm", ["none", "asr", "bn"])
def test_digits_rsda_is_the_papers(norm):
    config = recipe(f"digits.rsda_{norm}")
    assert (config.steps, config.batch_size, config.shuffle, config.selection) == (1_000_000, 32, False, "last")
    assert (config.optim.name, config.optim.lr, config.optim.weight_decay) == ("adam", 1e-4, 0.0)
    assert config.optim.schedule == "constant"
    assert config.suite.args == {"subset": "rsda"}
    assert config.model.args == {}
    args = config.method.args
    assert (args["interval"], args["candidates"], args["search_images"], args["tuple_length"]) == (1000, 100, 1000, 3)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("erm", {}),
        ("ada", {"rounds": 6, "interval": 100, "ascent_steps": 15, "ascent_lr": 1.0, "penalty": 1.0, "clip": False}),
        ("me_ada", {"rounds": 3, "interval": 100, "ascent_steps": 15, "entropy_weight": 10.0, "clip": True}),
        ("m_ada", {"rounds": 3, "interval": 100, "ascent_steps": 25, "relaxation": 2000.0, "clip": False}),
    ],
)
def test_the_ada_family_on_digits_is_the_original_protocols(method, expected):
    config = recipe(f"digits.{method}_none")
    assert (config.steps, config.batch_size) == (10_001, 64 if method == "m_ada" else 32)  # 32 of each kind
    assert config.shuffle == (method in ("me_ada", "m_ada"))
    assert (config.optim.name, config.optim.lr) == ("adam", 1e-4)
    assert config.suite.args == {"subset": "ada"}
    assert expected.items() <= config.method.args.items()


@pytest.mark.parametrize("name", ["cifar10c.erm_bn", "cifar10c.erm_asr", "cifar10c.ada_asr", "cifar10c.ada_sn_in_ln"])
def test_cifar_is_the_papers(name):
    config = recipe(name)
    optim = config.optim
    assert config.model.name == "wrn_40_4"
    assert (config.steps, config.batch_size, config.augment) == (78_200, 128, "cifar")
    assert (optim.name, optim.lr, optim.momentum, optim.nesterov) == ("sgd", 0.1, 0.9, True)
    assert (optim.weight_decay, optim.decay_lambdas, optim.schedule) == (5e-4, True, "cosine")
    if config.method.name == "ada":
        args = config.method.args
        assert (args["rounds"], args["interval"], args["ascent_steps"], args["penalty"]) == (3, 1000, 25, 1.0)
        assert args["growth"] == "source"


def test_bn_test_on_cifar_is_evaluated_in_batches_of_16():
    assert recipe("cifar10c.ada_bn_test").evaluate_batch == 16
    assert recipe("cifar10c.ada_bn").evaluate_batch == 500


@pytest.mark.parametrize(("source", "epoch"), [("photo", 11), ("art_painting", 14), ("cartoon", 16), ("sketch", 27)])
def test_pacs_from_one_source_is_the_papers_except_for_what_source_images_chose(source, epoch):
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


def test_bn_keeps_its_layers_in_the_pretrained_network():
    assert {recipe(f"pacs.erm_{norm}").layers for norm in ("bn", "bn_test", "bin", "sn")} == {"all"}
    assert {recipe(f"pacs.erm_{norm}").layers for norm in ("asr", "as", "ar", "in")} == {"early"}


@pytest.mark.data
@pytest.mark.parametrize("domain", sorted(PACS_NUM_TRAIN))
def test_the_counts_behind_the_steps_are_those_of_the_published_lists(domain):
    from asrnorm.data import create_suite

    suite = create_suite("pacs", source=domain)
    if suite.missing:
        pytest.skip("PACS is not under ASRNORM_DATA")
    assert len(suite.train) == PACS_NUM_TRAIN[domain]


def test_a_domain_chosen_with_set_changes_the_steps_too():
    assert recipe("pacs.erm_bn", **{"suite.source": "sketch"}) == recipe("pacs.erm_bn", source="sketch")
    assert recipe("pacs.erm_bn", source="photo,sketch").steps == 30 * 39
    assert recipe("pacs.erm_bn", source=["photo", "sketch"]) == recipe("pacs.erm_bn", source="photo,sketch")
    with pytest.raises(InputError, match=r"source= and suite\.source= are both given"):
        recipe("pacs.erm_bn", source="photo", **{"suite.source": "sketch"})


def test_steps_that_are_set_win():
    config = recipe("pacs.erm_bn", source="sketch", steps=5, **{"optim.lr": "1e-2", "method.x": "1"})
    assert (config.steps, config.optim.lr, config.method.args) == (5, 0.01, {"x": 1})


def test_a_domain_named_like_a_number_stays_a_name():
    config = recipe("folder.erm_bn", source="2020", **{"suite.target": "no", "suite.root": "/images"})
    assert config.suite.args == {"source": "2020", "target": "no", "root": "/images"}


def test_a_smoke_run_on_own_images_takes_small_ones_by_default():
    assert recipe("folder.erm_bn", scale="smoke").suite.args == {"size": 64}
    assert recipe("folder.erm_bn", scale="smoke", **{"suite.size": "32"}).suite.args == {"size": 32}


def test_another_suite_in_a_recipe_takes_the_domains_as_its_own():
    for name in ("digits_mini.erm_asr", "pacs.erm_asr", "folder.erm_asr"):
        config = recipe(name, source="cam_a", suite="folder", **{"suite.root": "/own", "suite.target": "cam_b"})
        assert config.suite.name == "folder"
        assert config.suite.args == {"root": "/own", "source": "cam_a", "target": "cam_b"}


def test_a_domain_that_is_given_twice_is_one():
    assert join_names(["cam_a", "cam_a"]) == "cam_a"


def test_the_method_table_names_suites_that_exist():
    for method, rows in read_table("methods.yaml")["methods"].items():
        assert set(rows) <= set(SUITES), method


def test_numbers_written_out_in_the_method_table_equal_what_they_stand_for():
    pgd, mild = (recipe(f"{suite}.pgd_bn").method.args for suite in ("cifar10c", "folder"))
    assert (pgd["epsilon"], pgd["ascent_lr"]) == (8 / 255, 2 / 255)
    assert (mild["epsilon"], mild["ascent_lr"]) == (4 / 255, 1 / 255)
    ttt = recipe("cifar10c.ttt_gn")
    assert (ttt.steps, ttt.optim.step_at, ttt.optim.step_again) == (150 * CIFAR_EPOCH, 75 / 150, 125 / 150)
    assert recipe("cifar10c.st_bn").steps == 100 * CIFAR_EPOCH
    assert recipe("cifar10c.me_ada_bn").method.args["interval"] == 10 * CIFAR_EPOCH
    assert recipe("pacs.rsc_bn").batch_size == PACS_BATCH // 2
    assert recipe("pacs.metareg_bn", source="sketch").method.args["phase_steps"] == 10 * 27


def test_a_rival_with_an_optimizer_of_its_own_keeps_the_rest_of_the_suites():
    erm, jigen = recipe("pacs.erm_bn").optim, recipe("pacs.jigen_bn").optim
    assert jigen == replace(erm, lr=0.001, nesterov=True)
    steps = OptimConfig(lr=0.1, weight_decay=5e-4, schedule="step", step_at=75 / 150, step_again=125 / 150)
    assert recipe("cifar10c.ttt_gn").optim == steps  # all else at the defaults


def test_a_suite_gets_a_recipe_for_erm_and_each_method_of_its_column(monkeypatch):
    def stripes(norm, *, source=None, target=None):
        """ERM on stripes."""
        return RunConfig(
            recipe=f"stripes.erm_{norm}",
            suite=Choice(name="stripes", args={"source": source} if source else {}),
            model=Choice(name="digits_convnet"),
            norm=Choice(name=norm),
            method=Choice(name="erm"),
            optim=OptimConfig(),
            steps=100,
            batch_size=4,
            evaluate_every=20,
        )

    monkeypatch.setattr(RECIPES, "_entries", dict(RECIPES._entries))
    noise = Variant("Noise.", {"interval": {"epochs": 2}, "sigma": 0.1}, {"suite": "stripes", "steps": 50})
    register_suite("stripes", SuiteRecipes(erm=stripes, norms=("bn",), short_by=2), {"noise": noise})
    assert RECIPES.summary("stripes.noise_bn") == "Noise; norm `bn`."
    assert recipe("stripes.erm_bn", source="red", scale="short").steps == 50
    config = recipe("stripes.noise_bn")
    assert (config.recipe, config.method.args, config.steps) == ("stripes.noise_bn", {"interval": 40, "sigma": 0.1}, 50)
    RECIPES["stripes.noise_bn"]().suite.args["root"] = "/elsewhere"
    assert RECIPES["stripes.noise_bn"]().suite.args == {}
