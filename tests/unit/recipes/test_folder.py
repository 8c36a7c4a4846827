"""The recipes of a user's own images."""

from asrnorm.recipes import recipe


def test_a_domain_named_like_a_number_stays_a_name():
    config = recipe("folder.erm_bn", source="2020", **{"suite.target": "no", "suite.root": "/images"})
    assert config.suite.args == {"source": "2020", "target": "no", "root": "/images"}


def test_a_smoke_run_on_own_images_sees_small_ones_unless_told():
    assert recipe("folder.erm_bn", scale="smoke").suite.args == {"size": 64}
    assert recipe("folder.erm_bn", scale="smoke", **{"suite.size": "32"}).suite.args == {"size": 32}
