"""The public names are pinned: a change here is a change for users."""

import doctest
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import asrnorm

PUBLIC = [
    "ASRNorm2d",
    "Batch",
    "Corrupt",
    "__version__",
    "augment",
    "calibrate",
    "capture",
    "confine",
    "conversion_summary",
    "convert",
    "corrupt",
    "create_method",
    "create_model",
    "create_norm",
    "create_suite",
    "from_pretrained",
    "insert",
    "list_methods",
    "list_models",
    "list_norms",
    "list_recipes",
    "list_suites",
    "load",
    "push_to_hub",
    "recipe",
    "reestimate",
    "remove",
    "revert",
    "save",
    "save_pretrained",
    "train",
]
ASR_SIGNATURE = (
    "num_features, *, stan_ratio=2, rescale_ratio=16, rescale_features=None, standardize=True, rescale=True, "
    "residual=True, gated_rescale=False, bias=True, share_rescale_encoder=True, statistics='instance', "
    "per_channel_lambda=False, lambda_init=-3.0, gate_init=-5.0, eps=1e-05, activation=None, device=None, dtype=None"
)
REGISTRY_KEYS = {
    "norms": "asr as ar bn bn_test dsbn dson in ln gn sn sn_in_ln bin ilm none",
    "suites": "digits cifar10c pacs folder digits_mini",
    "methods": "erm ada me_ada m_ada rda rsda esda rsc pgd "
    "jigen st ttt cutout dropblock adversarial_dropout ccsa dsne metareg consistency",
    "models": "digits_convnet wrn_40_4 wrn_16_4 wrn_40_2 resnet18 resnet26_ttt resnet50 timm",
}


def test_public_names():
    assert sorted(dir(asrnorm)) == PUBLIC
    assert all(getattr(asrnorm, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'covnert'"):
        asrnorm.covnert  # noqa: B018


def test_submodules_do_not_shadow_public_functions():
    for module in (
        "norms",
        "models",
        "conversion",
        "ops",
        "data",
        "data.corruptions",
        "methods",
        "recipes",
        "training",
        "evaluation",
        "cli.main",
    ):
        import_module(f"asrnorm.{module}")
    assert all(inspect.isroutine(getattr(asrnorm, name)) for name in PUBLIC if name[0].islower())


def test_the_signature_of_the_layer():
    parameters = inspect.signature(asrnorm.ASRNorm2d).parameters.values()
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(bare)) == f"({ASR_SIGNATURE})"


@pytest.mark.parametrize("kind", REGISTRY_KEYS)
def test_registry_keys(kind):
    names = getattr(asrnorm, f"list_{kind}")()
    assert set(names) == set(REGISTRY_KEYS[kind].split())


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_every_public_name_has_a_doctest(name):
    assert doctest.DocTestFinder(recurse=False).find(getattr(asrnorm, name), name)[0].examples


def test_import_needs_no_optional_library():
    blocked = "torchvision timm triton ray onnx onnxscript onnxruntime"
    script = (
        "import sys\n"
        f"for name in {blocked.split()!r}: sys.modules[name] = None\n"
        "import torch, asrnorm\n"
        "model = asrnorm.create_model('wrn_16_4', norm='asr')\n"
        "model(torch.randn(2, 3, 32, 32)).sum().backward()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
