import math

import pytest
import torch

from asrnorm.methods.rsc import VERSIONS, DropRule, drop_to_exceed

# What the three releases drop of a 7x7 map with 512 channels, and of others, where no two scores are equal.
SHARES = {
    ("v1", "spatial"): lambda k: int(k / 3),
    ("v1", "channel"): lambda k: int(k / 3.2),
    ("v2", "spatial"): lambda k: int(k / 3) + 1,
    ("v2", "channel"): lambda k: int(k / 3),
    ("v3", "spatial"): lambda k: math.ceil(k / 3),
    ("v3", "channel"): lambda k: math.ceil(k / 3.2),
}
PUBLISHED = {
    ("v1", "spatial"): 16,
    ("v1", "channel"): 160,
    ("v2", "spatial"): 17,
    ("v2", "channel"): 170,
    ("v3", "spatial"): 17,
    ("v3", "channel"): 160,
}


def dropped(version, kind, score):
    random = torch.rand(score.shape, generator=torch.Generator().manual_seed(0))
    return getattr(VERSIONS[version], kind).dropped(score, random)


@pytest.mark.parametrize(("version", "kind"), SHARES)
def test_masks_drop_exactly_the_stated_share(version, kind):
    published = 49 if kind == "spatial" else 512
    assert SHARES[version, kind](published) == PUBLISHED[version, kind]
    for k in (published, 4, 5, 9, 25, 36, 64, 100, 129):
        score = torch.rand(8, k, dtype=torch.float64)
        assert dropped(version, kind, score).sum(1).tolist() == [SHARES[version, kind](k)] * 8


@pytest.mark.parametrize(("version", "kind"), SHARES)
def test_what_is_dropped_has_the_largest_scores(version, kind):
    score = torch.rand(8, 512, dtype=torch.float64)
    place = {("v1", "spatial"): 171, ("v1", "channel"): 165}.get((version, kind), SHARES[version, kind](512))
    top = score >= score.sort(1, descending=True).values[:, place - 1 : place]
    assert (top | ~dropped(version, kind, score)).all()


def test_the_first_version_picks_channels_among_a_few_more_than_it_drops():
    score = torch.arange(512.0).expand(200, 512)
    picked = VERSIONS["v1"].channel.dropped(score, torch.rand(200, 512, generator=torch.Generator().manual_seed(0)))
    # Above the threshold, at place int(512 / 3.1) = 165, lie as many; int(512 / 3.2) = 160 of them are dropped.
    assert picked.any(0).nonzero().flatten().tolist() == list(range(512 - 165, 512))
    assert picked.sum(1).tolist() == [160] * 200


def test_where_ties_leave_fewer_above_the_first_version_picks_among_all():
    score = torch.tensor([5.0, *[1.0] * 9]).expand(4000, 10)  # the threshold is 1, and one score lies above it
    rule = DropRule(3.1, pick_divisor=3.2)
    picked = rule.dropped(score, torch.rand(4000, 10, generator=torch.Generator().manual_seed(0)))
    assert picked.sum(1).tolist() == [3] * 4000
    assert ((picked.double().mean(0) - 0.3).abs() < 0.03).all()


def test_tied_scores_by_version():
    tied = torch.zeros(3, 49)
    count = {version: dropped(version, "spatial", tied).sum(1).tolist() for version in VERSIONS}
    assert count == {"v1": [16] * 3, "v2": [49] * 3, "v3": [0] * 3}
    tied = torch.zeros(3, 512)
    count = {version: dropped(version, "channel", tied).sum(1).tolist() for version in VERSIONS}
    # v1 finds nothing above the threshold and picks from all; the others drop nothing.
    assert count == {"v1": [160] * 3, "v2": [0] * 3, "v3": [0] * 3}


def test_the_first_version_picks_at_random_among_those_above():
    score = torch.arange(10.0).expand(4000, 10)
    picked = DropRule(3, inclusive=True, pick_divisor=3).dropped(score, torch.rand(4000, 10))
    share = picked.double().mean(0)
    assert (share[:6] == 0).all()
    assert ((share[6:] - 0.75).abs() < 0.05).all()  # three of the four largest


@pytest.mark.parametrize("version", VERSIONS)
def test_the_smallest_maps_are_masked_without_an_error(version):
    for k in (1, 2):
        for kind in ("spatial", "channel"):
            assert dropped(version, kind, torch.rand(2, k)).shape == (2, k)


def test_the_drop_to_exceed_leaves_the_stated_share_above():
    drop = torch.rand(128, dtype=torch.float64)
    for share in (0.0, 0.3, 1 / 3, 0.5, 1.0):
        assert int((drop > drop_to_exceed(drop, torch.tensor(share, dtype=torch.float64))).sum()) == round(128 * share)


def test_samples_without_a_drop_never_keep_their_mask():
    drop = torch.tensor([0.0, 0.2, 0.0, 0.0])
    assert (drop > drop_to_exceed(drop, torch.tensor(1.0, dtype=torch.float64))).tolist() == [False, True, False, False]
    assert (drop > drop_to_exceed(drop, torch.tensor(0.5, dtype=torch.float64))).tolist() == [False, True, False, False]
