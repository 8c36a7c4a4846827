"""Moments that each kind of noise must have, on flat grey where nothing is clipped."""

import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.severity import severity_options

GRAY = 120
IMAGES = np.full((40, 32, 32, 3), GRAY, np.uint8)
TRUNCATION = 0.5  # values are cut down to whole grey levels, half a level on average


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_gaussian_noise_has_its_sd_and_no_bias(severity):
    noise = corrupt(IMAGES, "gaussian_noise", severity=severity).astype(float) - GRAY
    sd = 255 * severity_options("gaussian_noise", severity, "cifar")["sd"]
    assert noise.mean() == pytest.approx(-TRUNCATION, abs=0.3)
    assert noise.std() == pytest.approx(sd, rel=0.02)
    assert abs(np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]) < 0.02  # each channel its own


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_shot_noise_has_the_variance_of_its_photons(severity):
    noisy = corrupt(IMAGES, "shot_noise", severity=severity).astype(float)
    photons = severity_options("shot_noise", severity, "cifar")["photons"]
    assert noisy.mean() == pytest.approx(GRAY - TRUNCATION, abs=0.5)
    assert noisy.var() == pytest.approx(GRAY * 255 / photons, rel=0.03)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_impulse_noise_is_half_salt_half_pepper(severity):
    noisy = corrupt(IMAGES, "impulse_noise", severity=severity)
    amount = severity_options("impulse_noise", severity, "cifar")["amount"]
    assert set(np.unique(noisy)) == {0, GRAY, 255}
    assert (noisy == 255).mean() == pytest.approx(amount / 2, rel=0.1)
    assert (noisy == 0).mean() == pytest.approx(amount / 2, rel=0.1)


@pytest.mark.parametrize("gray", [40, 120])
def test_speckle_noise_grows_with_the_value(gray):
    noisy = corrupt(np.full_like(IMAGES, gray), "speckle_noise", severity=3).astype(float)
    assert noisy.mean() == pytest.approx(gray - TRUNCATION, abs=0.2)
    assert noisy.std() == pytest.approx(0.12 * gray, rel=0.03)


def test_black_stays_black_under_shot_and_speckle_noise():
    black = np.zeros_like(IMAGES[:2])
    for name in ("shot_noise", "speckle_noise"):
        assert not corrupt(black, name, severity=5).any()
