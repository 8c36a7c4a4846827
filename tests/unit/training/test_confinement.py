"""A run that confines its learned means: at the end, on its training images, and kept with its weights."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from asrnorm import recipe
from asrnorm.core.config import Choice, content_hash
from asrnorm.core.errors import InputError
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import subsample
from asrnorm.norms import NORMS, ASRNorm2d
from asrnorm.training.assembly import check_config
from asrnorm.training.run import load_run, run


@pytest.fixture
def config():
    return recipe("digits_mini.erm_asr", scale="smoke")


def norms_of(model):
    return [module for module in model.modules() if isinstance(module, ASRNorm2d)]


def test_limits_are_those_of_the_training_images_and_lie_with_the_weights(config, tmp_path):
    run(replace(config, confine=20), tmp_path / "confined")
    run(config, tmp_path / "free")
    confined, free = load_run(tmp_path / "confined"), load_run(tmp_path / "free")
    assert all(layer.limits is not None for layer in norms_of(confined.model))
    assert all(layer.limits is None for layer in norms_of(free.model))
    assert not any("shift" in name for name in load_file(tmp_path / "free" / "model.safetensors"))
    # The same training, then a pass over twenty images that are spread over the set.
    images = torch.from_numpy(subsample(free.suite.train, 20).images.copy()).permute(0, 3, 1, 2).float() / 255
    first = norms_of(free.model)[0]
    with torch.no_grad():
        shift = first.learned_shift(free.model.conv1(images))
    torch.testing.assert_close(norms_of(confined.model)[0].shift_most, shift.amax(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norms_of(confined.model)[0].shift_least, shift.amin(0), rtol=1e-4, atol=1e-5)


def test_free_runs_keep_their_hash_and_confined_ones_have_another(config):
    assert content_hash(replace(config, confine=0)) == content_hash(config)
    assert content_hash(replace(config, confine=20)) != content_hash(config)


@pytest.mark.parametrize("name", ["digits_mini.erm_bn", "digits_mini.erm_ar", "digits_mini.erm_none"])
def test_norms_without_a_learned_mean_are_refused_before_training(name):
    with pytest.raises(InputError, match="confine is for norms that learn their standardization"):
        check_config(replace(recipe(name, scale="smoke"), confine=20))


def test_a_compiled_run_and_a_negative_number_are_refused(config):
    with pytest.raises(InputError, match="compiled layers"):
        check_config(replace(config, confine=20, compile=True))
    with pytest.raises(InputError, match="confine must be at least 0"):
        replace(config, confine=-1)


def test_norms_of_ones_own_are_judged_by_the_layers_they_make(config, tmp_path, monkeypatch):
    class RescaleOnly(ASRNorm2d):
        def __init__(self, num_features, **options):
            super().__init__(num_features, standardize=False, **options)

    monkeypatch.setitem(NORMS._entries, "thin_asr", lambda num_features: ASRNorm2d(num_features, stan_ratio=4))
    monkeypatch.setitem(NORMS._entries, "rescale_only", RescaleOnly)
    run(replace(config, norm=Choice(name="thin_asr"), confine=20), tmp_path / "thin")
    with pytest.raises(InputError, match=r"confine is for norms that learn .* not 'rescale_only'"):
        run(replace(config, norm=Choice(name="rescale_only"), confine=20), tmp_path / "rescale")
    assert not list((tmp_path / "rescale").glob("checkpoints/*"))


def test_limits_are_found_in_the_precision_that_they_are_used_in(config, tmp_path):
    config = replace(config, precision="bfloat16", confine=20)
    run(config, tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    inference = Inference.of(loaded.model, precision="bfloat16")
    images = inference.to_input(subsample(loaded.suite.train, 20).images)
    with torch.no_grad():
        confined = inference.logits(images)
        for layer in norms_of(loaded.model):
            layer.confine(None, None)
        assert torch.equal(inference.logits(images), confined)
