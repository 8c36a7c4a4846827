"""The recipes of a user's own images."""

from asrnorm.recipes import recipe
from asrnorm.recipes.base import join_names


def test_a_domain_named_like_a_number_stays_a_name():
    config = recipe("folder.erm_bn", source="2020", **{"suite.target": "no", "suite.root": "/images"})
    assert config.suite.args == {"source": "2020", "target": "no", "root": "/images"}


def test_a_smoke_run_on_own_images_sees_small_ones_unless_told():
    assert recipe("folder.erm_bn", scale="smoke").suite.args == {"size": 64}
    assert recipe("folder.erm_bn", scale="smoke", **{"suite.size": "32"}).suite.args == {"size": 32}


def test_the_domains_of_a_suite_that_takes_the_place_of_the_recipes_are_its_own():
    for name in ("digits_mini.erm_asr", "pacs.erm_asr", "folder.erm_asr"):
        config = recipe(name, source="cam_a", suite="folder", **{"suite.root": "/own", "suite.target": "cam_b"})
        assert config.suite.name == "folder"
        assert config.suite.args == {"root": "/own", "source": "cam_a", "target": "cam_b"}


def test_a_domain_that_is_given_twice_is_one():
    assert join_names(["cam_a", "cam_a"]) == "cam_a"
