"""The recipes of Digits have the numbers of the paper, and of the protocols that its tables copy."""

import pytest

from asrnorm.recipes import recipe


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
