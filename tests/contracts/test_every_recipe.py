"""Every recipe at every scale: it builds, is stored and read back, has a hash of its own, and names what exists."""

import subprocess
import sys
from functools import cache

import pytest
import yaml

from asrnorm.core.config import content_hash, dump_config, from_mapping, to_mapping
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import SUITES
from asrnorm.methods import METHODS
from asrnorm.models import MODELS, create_model
from asrnorm.norms import NORMS
from asrnorm.recipes import RECIPES, list_recipes, recipe
from asrnorm.recipes.base import NORMS as RECIPE_NORMS

NORM_KEYS = {
    "asr",
    "as",
    "ar",
    "bn",
    "bn_test",
    "dsbn",
    "dson",
    "in",
    "ln",
    "gn",
    "sn",
    "sn_in_ln",
    "bin",
    "ilm",
    "none",
}
METHOD_KEYS = {"erm", "ada", "me_ada", "m_ada", "rda", "rsda", "esda", "rsc", "pgd", "consistency"} | {
    *("jigen", "st", "ccsa", "dsne", "cutout", "dropblock", "adversarial_dropout", "ttt", "metareg")
}
SUITE_KEYS = {"digits", "cifar10c", "pacs", "folder", "digits_mini"}
MODEL_KEYS = {"digits_convnet", "wrn_40_4", "wrn_16_4", "wrn_40_2", "resnet18", "resnet26_ttt", "resnet50"}
SCALES = ("paper", "short", "smoke")
FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 1,400 files

# What the tables train, cell by cell.
TABLES = {
    "table1": "digits.erm_none digits.ada_none digits.m_ada_none digits.me_ada_none digits.rsda_none digits.rsda_asr "
    "digits.jigen_none digits.ccsa_none digits.dsne_none",
    "table2": "cifar10c.erm_bn cifar10c.pgd_bn cifar10c.ada_bn cifar10c.m_ada_bn cifar10c.me_ada_bn cifar10c.erm_asr "
    "cifar10c.ada_asr cifar10c.st_bn cifar10c.ttt_gn",
    "table3": "pacs.erm_bn pacs.rsc_bn pacs.rsc_asr",
    "table4": "pacs.erm_bn pacs.erm_bin pacs.erm_sn pacs.rsc_bn pacs.rsc_asr pacs.jigen_bn pacs.erm_dson "
    "pacs.metareg_bn pacs.cutout_bn pacs.dropblock_bn pacs.adversarial_dropout_bn",
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
    assert set(RECIPE_NORMS) == NORM_KEYS - {"dsbn", "dson"}


BEST = [name for name in list_recipes() if name.endswith(".best")]


@pytest.mark.parametrize("name", [name for name in list_recipes() if name not in BEST])
def test_a_name_says_suite_method_and_norm(name):
    suite, _, rest = name.partition(".")
    for scale in SCALES:
        config = built()[name, scale]
        assert (config.recipe, config.scale) == (name, scale)
        assert config.suite.name == suite
        assert f"{config.method.name}_{config.norm.name}" == rest
        assert config.method.name in METHOD_KEYS
    assert RECIPES.summary(name).endswith(f"; norm `{config.norm.name}`.")


@pytest.mark.parametrize("name", BEST)
def test_the_best_of_a_suite_are_recipes_of_that_suite(name):
    for scale in SCALES:
        config = built()[name, scale]
        assert (config.recipe, config.scale) == (name, scale)
        assert config.suite.name == name.partition(".")[0]
        assert config.selection == "last" or config.suite.name == "folder"
        assert config.fold == "none"
    assert RECIPES.summary(name)


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


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(UnknownNameError, match=r"did you mean 'digits\.rsda_asr'\? `asrnorm list recipes`"):
        recipe("digits.rsda_asrr")
    with pytest.raises(
        UnknownNameError, match=r"'folder\.rsda_sn_in_ln'; that is folder\.rsda_asr --set norm=sn_in_ln"
    ):
        recipe("folder.rsda_sn_in_ln")
    with pytest.raises(UnknownNameError, match="unknown scale 'papper'; did you mean 'paper'"):
        recipe("digits.rsda_asr", scale="papper")
    with pytest.raises(UnknownNameError, match="unknown domain of suite 'pacs', 'cartoons'; did you mean 'cartoon'"):
        recipe("pacs.rsc_asr", source="cartoons")
    with pytest.raises(UnknownNameError, match="unknown config field 'stepps'; did you mean 'steps'"):
        recipe("pacs.rsc_asr", stepps=3)
    with pytest.raises(InputError, match=r"'digits\.erm_bn' has no choice of domains: leave out source and target"):
        recipe("digits.erm_bn", source="mnist", target="svhn")


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
        "from asrnorm.core.config import content_hash, dump_config\n"
        "for name in list_recipes():\n"
        "    content_hash(recipe(name))\n"
        "print(len(dump_config(recipe('digits.rsda_asr'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
