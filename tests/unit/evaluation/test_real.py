"""Scores on the real files. Needs ASRNORM_DATA."""

import os
from dataclasses import astuple

import pytest
import torch

from asrnorm.data import create_suite
from asrnorm.evaluation import score, score_suite
from asrnorm.models import create_model

pytestmark = pytest.mark.data


@pytest.fixture
def digits(tmp_path, monkeypatch):
    if "ASRNORM_DATA" not in os.environ:
        pytest.skip("ASRNORM_DATA is not set")
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path))
    suite = create_suite("digits")
    for part in suite.missing:
        if part.name in ("mnist", "usps"):
            pytest.skip(f"{part.name}: {part.detail}")
    return suite


def test_digits_in_float32_do_not_depend_on_the_batch_size(digits):
    torch.manual_seed(0)
    net = create_model("digits_convnet", norm="asr", channels=(8, 8), hidden=32)
    found = score_suite(net, digits)
    assert found.source.num_samples == 10_000
    assert {domain.name for domain in found.domains} | set(found.missing) == {"svhn", "mnist_m", "syn", "usps"}
    usps = next(domain for domain in found.domains if domain.name == "usps")
    assert usps.num_samples == 2007
    for batch_size in (7, 64):
        again = score(net, digits.targets["usps"], name="usps", batch_size=batch_size)
        assert again.accuracy == usps.accuracy
        assert astuple(again)[1:] == pytest.approx(astuple(usps)[1:], abs=1e-7)
