"""Every recipe at every scale: it builds, is stored and read back, has a hash of its own, and names what exists."""

import subprocess
import sys
from functools import cache

import pytest
import yaml

from asrnorm.config import content_hash, dump_config, from_mapping, to_mapping
from asrnorm.data import SUITES
from asrnorm.errors import InputError, UnknownNameError
from asrnorm.methods import METHODS
from asrnorm.models import MODELS, create_model
from asrnorm.norms import NORMS
from asrnorm.recipes import RECIPES, list_recipes, recipe
from asrnorm.recipes.base import NORMS as RECIPE_NORMS
from asrnorm.recipes.pacs import NUM_TRAIN

NORM_KEYS = {"asr", "as", "ar", "bn", "bn_test", "dsbn", "in", "ln", "gn", "sn", "sn_in_ln", "bin", "ilm", "none"}
METHOD_KEYS = {"erm", "ada", "me_ada", "m_ada", "rda", "rsda", "esda", "rsc", "pgd"}
SUITE_KEYS = {"digits", "cifar10c", "pacs", "folder", "digits_mini"}
MODEL_KEYS = {"digits_convnet", "wrn_40_4", "wrn_16_4", "wrn_40_2", "resnet18", "resnet50"}
SCALES = ("paper", "short", "smoke")
FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 1,400 files

# What the tables train, cell by cell.
TABLES = {
    "table1": "digits.erm_none digits.ada_none digits.m_ada_none digits.me_ada_none digits.rsda_none digits.rsda_asr",
    "table2": "cifar10c.erm_bn cifar10c.pgd_bn cifar10c.ada_bn cifar10c.m_ada_bn cifar10c.me_ada_bn cifar10c.erm_asr "
    "cifar10c.ada_asr",
    "table3": "pacs.erm_bn pacs.rsc_bn pacs.rsc_asr",
    "table4": "pacs.erm_bn pacs.erm_bin pacs.erm_sn pacs.rsc_bn pacs.rsc_asr",
    "table5": "cifar10c.ada_bn cifar10c.ada_in cifar10c.ada_sn_in_ln cifar10c.ada_ar cifar10c.ada_as cifar10c.ada_asr",
    "table9": "digits.rsda_bn digits.rsda_bn_test digits.rsda_in digits.rsda_sn digits.rsda_none digits.rsda_ar "
    "digits.rsda_as digits.rsda_asr",
    "figure": "cifar10c.ada_bn_test",
    "demo": "digits_mini.erm_bn digits_mini.erm_asr digits_mini.rsda_asr digits_mini.erm_none digits_mini.rsda_none "
    "digits_mini.rsda_bn digits_mini.ada_asr",
    "own images": "folder.erm_bn folder.erm_asr folder.rsda_asr folder.ada_asr folder.rsc_asr",
}


@cache
def built():
    """All recipes at all scales; building them is quick, and every test looks at all."""
    return {(name, scale): recipe(name, scale=scale) for name in list_recipes() for scale in SCALES}


def test_the_keys_are_those_of_the_registries():
    assert set(NORMS) == NORM_KEYS
    assert set(SUITES) == SUITE_KEYS
    assert set(MODELS) == MODEL_KEYS | {"timm"}  # which has no recipe
    assert set(METHODS) <= METHOD_KEYS
    assert set(RECIPE_NORMS) == NORM_KEYS - {"dsbn"}


@pytest.mark.parametrize("name", list_recipes())
def test_a_name_says_suite_method_and_norm(name):
    suite, _, rest = name.partition(".")
    for scale in SCALES:
        config = built()[name, scale]
        assert (config.recipe, config.scale) == (name, scale)
        assert config.suite.name == suite
        assert f"{config.method.name}_{config.norm.name}" == rest
        assert config.method.name in METHOD_KEYS
    assert RECIPES.summary(name).endswith(f"; norm `{config.norm.name}`.")


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_of_the_tables_has_a_recipe(table):
    assert set(TABLES[table].split()) <= set(RECIPES)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("suite", sorted(SUITE_KEYS))
def test_options_are_those_of_the_registries(suite, scale):
    for (_, own_scale), config in built().items():
        if config.suite.name != suite or own_scale != scale:
            continue
        SUITES.check(config.suite.name, config.suite.args)
        MODELS.check(config.model.name, config.model.args)
        NORMS.check(config.norm.name, config.norm.args)
        if config.method.name in METHODS:
            METHODS.check(config.method.name, config.method.args)
            METHODS[config.method.name](**config.method.args)


@pytest.mark.parametrize("scale", SCALES)
def test_a_stored_recipe_reads_back_as_itself(scale):
    for (name, own_scale), config in built().items():
        if own_scale == scale:
            assert from_mapping(yaml.load(dump_config(config), FAST_LOADER)) == config, name
            assert from_mapping(to_mapping(config)) == config, name


def test_hashes_are_stable_and_tell_all_recipes_scales_and_seeds_apart():
    hashes = {key: content_hash(config) for key, config in built().items()}
    assert len(set(hashes.values())) == len(hashes)
    for (name, scale), value in list(hashes.items())[::50]:
        assert content_hash(recipe(name, scale=scale)) == value
        assert content_hash(recipe(name, scale=scale, seed=1)) != value


def test_growing_methods_grow_at_every_scale():
    for (name, scale), config in built().items():
        args = config.method.args
        if config.method.name != "rsc" and "interval" in args:
            assert args["interval"] * args.get("rounds", 1) < config.steps, (name, scale)


def test_scales_shrink():
    for name in list_recipes():
        paper, short, smoke = (built()[name, scale] for scale in SCALES)
        is_short_already = paper.suite.name == "digits" and paper.steps == 10_001
        assert paper.steps > short.steps > smoke.steps or (is_short_already and short.steps == paper.steps)
        assert smoke.steps <= 10
        assert smoke.batch_size * smoke.steps <= 64
        assert 0 < smoke.evaluate_limit <= 64
        assert paper.evaluate_limit == short.evaluate_limit == 0
        assert paper.method == short.method
        assert {paper.selection, short.selection, smoke.selection} == {paper.selection}


@pytest.mark.parametrize("norm", RECIPE_NORMS)
def test_a_smoke_network_of_every_norm_can_be_made(norm):
    model = recipe(f"digits.erm_{norm}", scale="smoke").model
    assert create_model(model.name, norm=norm, **model.args).num_classes == 10


# --- The numbers of the paper -----------------------------------------------------------------------------------------


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
    assert config.method.args["version"] == "v3"
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


# --- Choosing ---------------------------------------------------------------------------------------------------------


def test_a_domain_chosen_with_set_moves_the_steps_too():
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


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(UnknownNameError, match=r"did you mean 'digits\.rsda_asr'\? `asrnorm list recipes`"):
        recipe("digits.rsda_asrr")
    with pytest.raises(UnknownNameError, match="unknown scale 'papper'; did you mean 'paper'"):
        recipe("digits.rsda_asr", scale="papper")
    with pytest.raises(UnknownNameError, match="unknown domain of suite 'pacs', 'cartoons'; did you mean 'cartoon'"):
        recipe("pacs.rsc_asr", source="cartoons")
    with pytest.raises(UnknownNameError, match="unknown config field 'stepps'; did you mean 'steps'"):
        recipe("pacs.rsc_asr", stepps=3)
    with pytest.raises(InputError, match=r"'digits\.erm_bn' has no choice of domains: leave out source and target"):
        recipe("digits.erm_bn", source="mnist", target="svhn")


def test_a_smoke_run_on_own_images_sees_small_ones_unless_told():
    assert recipe("folder.erm_bn", scale="smoke").suite.args == {"size": 64}
    assert recipe("folder.erm_bn", scale="smoke", **{"suite.size": "32"}).suite.args == {"size": 32}


def test_no_domain_is_no_choice():
    assert recipe("folder.rsda_asr").suite.args == {}
    assert recipe("pacs.rsc_asr").suite.args == {"source": "photo"}


def test_configs_of_one_recipe_share_nothing():
    first, second = (recipe("digits_mini.rsda_asr", scale="smoke") for _ in range(2))
    first.model.args["channels"].append(1)
    first.method.args["interval"] = 7
    assert second == recipe("digits_mini.rsda_asr", scale="smoke")


def test_recipes_open_without_torch():
    script = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from asrnorm.recipes import list_recipes, recipe\n"
        "from asrnorm.config import content_hash, dump_config\n"
        "for name in list_recipes():\n"
        "    content_hash(recipe(name))\n"
        "print(len(dump_config(recipe('digits.rsda_asr'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
