import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.methods import RSC, Batch, create_method
from asrnorm.methods.rsc import VERSIONS, DropRule, drop_to_exceed, features_and_stage, features_from_stage, find_stage
from asrnorm.models import DigitsConvNet, WideResNet, create_model
from asrnorm.models.base import NormalizedInput
from asrnorm.norms import NORMS
from helpers.tiny_classifier import FixedMaps, FlatHead, TwoStages

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


@pytest.mark.parametrize("version", ["x", ["paper"], 5])
def test_a_version_that_is_none_is_one_line(version):
    with pytest.raises(UnknownNameError):
        create_method("rsc", version=version)


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


def test_the_stage_is_found_inside_a_wrapper():
    backbone = create_model("resnet18", num_classes=3)
    assert find_stage(NormalizedInput(backbone, (0.5,) * 3, (0.5,) * 3)) is backbone.layer3


def test_a_network_without_stages_is_refused_in_one_line():
    with pytest.raises(InputError, match="DigitsConvNet has no module named layer3 or group2; choose version 'v1'"):
        find_stage(DigitsConvNet(channels=(4, 8), hidden=8))


def test_the_rest_of_the_network_runs_from_the_given_map_and_no_hook_stays():
    model = WideResNet(10, 1).eval()
    images = torch.randn(5, 3, 16, 16)
    maps, stage_map = features_and_stage(model, images)
    assert torch.equal(maps, model.features(images))
    assert torch.equal(stage_map, model.group2(model.group1(model.conv1(images))))
    torch.testing.assert_close(features_from_stage(model, images, stage_map), maps)
    assert not model.group2._forward_hooks


def test_no_hook_stays_after_an_error():
    model = WideResNet(10, 1).eval()
    with pytest.raises(RuntimeError):
        features_and_stage(model, torch.randn(5, 4, 16, 16))
    assert not model.group2._forward_hooks


# Two samples of class 0, eight channels of 2x2; the more a channel's weight, the sooner it is dropped.
WEIGHT = [[0.01, 0.08, 0.02, 0.07, 0.03, 0.06, 0.04, 0.05], [-0.01] * 8]
LABELS = torch.tensor([0, 0])
NO_IMAGES = torch.zeros(2, 3, 4, 4, dtype=torch.float64)


def run(method, model, labels=LABELS, images=None, step=0):
    images = torch.zeros(len(labels), 3, 4, 4, dtype=torch.float64) if images is None else images
    loss = method.loss(model, Batch(images, labels, step))
    loss.backward()
    return loss.detach()


def all_masked(version, **options):
    """Every sample counts and keeps its mask, so that the masks themselves can be seen."""
    return RSC(version=version, batch_share=1.0, margin=-1.0, flip=False, **options)


def ones_and_twos():
    maps = torch.ones(2, 8, 2, 2)
    maps[:, :, 0, 0] = 2.0
    maps[1, :, 1, 1] = 3.0
    return maps


def test_v1_channel_mask_by_hand():
    # int(8 / 3.1) = 2 lie above the threshold, int(8 / 3.2) = 2 are picked: channels 1 and 3.
    model = FixedMaps(ones_and_twos(), WEIGHT)
    run(all_masked("v1", spatial_chance=0.0), model)
    assert model.dropped().all((2, 3)).tolist() == [[False, True, False, True, False, False, False, False]] * 2
    assert int(model.dropped().sum()) == 2 * 2 * 4


def test_v1_spatial_mask_behind_a_mean_is_a_random_third():
    model = FixedMaps(torch.ones(6, 8, 3, 3), WEIGHT)
    labels = torch.zeros(6, dtype=torch.int64)
    run(all_masked("v1", spatial_chance=1.0), model, labels)
    first = model.dropped()
    assert first.any(1).equal(first.all(1))  # whole positions
    assert first.all(1).flatten(1).sum(1).tolist() == [3] * 6  # int(9 / 3)
    assert len({tuple(row) for row in first.all(1).flatten(1).tolist()}) > 1
    model.maps.grad = None
    run(all_masked("v1", spatial_chance=1.0), model, labels, step=1)
    assert not torch.equal(model.dropped(), first)


def test_v1_spatial_mask_by_hand():
    # Position p of every channel has weight p: above or at the threshold lie 5, 6, 7, 8, of which int(9 / 3) go.
    weight = torch.stack([torch.arange(9.0).repeat(2) / 100, torch.full((18,), -1.0)])
    seen = set()
    for step in range(40):
        model = FlatHead(torch.ones(1, 2, 3, 3), weight)
        run(all_masked("v1", spatial_chance=1.0), model, torch.tensor([0]), step=step)
        gone = model.dropped().all(1).flatten().nonzero().flatten().tolist()
        assert len(gone) == 3
        seen |= set(gone)
    assert seen == {5, 6, 7, 8}


def two_stages():
    # The mean of layer3's gradient over channels is the factor of the position, times a constant; every second row
    # and column of it, from the first, are [[1, 4], [3, 2]].
    factors = torch.full((4, 4), 9.0)
    factors[::2, ::2] = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    return TwoStages(torch.ones(2, 8, 4, 4), factors, WEIGHT)


def test_v2_spatial_mask_by_hand():
    # Threshold at place int(4 / 3) = 1; it is dropped itself: positions of 4 and 3.
    model = two_stages()
    run(all_masked("v2", spatial_chance=1.0), model)
    expected = torch.tensor([[False, True], [True, False]])
    upsampled = expected.repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(model.dropped(), upsampled.expand(2, 8, 4, 4))


def test_v2_channel_mask_by_hand():
    model = two_stages()
    run(all_masked("v2", spatial_chance=0.0), model)  # int(8 / 3) = 2
    assert model.dropped().all((2, 3)).tolist() == [[False, True, False, True, False, False, False, False]] * 2


def test_v2_judges_with_the_last_stage_in_evaluation():
    model = two_stages().train()
    run(all_masked("v2", spatial_chance=1.0), model)
    assert model.layer4.modes == [True, False]
    assert model.layer4.training


def test_v2_counts_a_batch_once_and_judges_by_running_statistics():
    model = WideResNet(10, 1, num_classes=3).train()
    images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    run(RSC(version="v2"), model, labels, images)
    assert {int(m.num_batches_tracked) for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {1}


def test_v3_spatial_mask_by_hand():
    # The score of a position is the sum over channels of activation times weight: as the activations 2, 1, 1, 1 and
    # 2, 1, 1, 3. Place ceil(4 / 3) = 2 has 1 in both: dropped is what is strictly more.
    model = FixedMaps(ones_and_twos(), WEIGHT)
    run(all_masked("v3", spatial_chance=1.0), model)
    gone = model.dropped().all(1)
    assert torch.equal(gone, model.dropped().any(1))
    assert gone.tolist() == [[[True, False], [False, False]], [[True, False], [False, True]]]


def test_v3_spatial_scores_have_signs():
    # The first corner has 2 in the channels that speak for the class, the last 5 in those against it: .2, 0, 0, -.8.
    maps = torch.ones(2, 8, 2, 2)
    maps[:, :4, 0, 0], maps[:, 4:, 1, 1] = 2.0, 5.0
    model = FixedMaps(maps, [[0.05] * 4 + [-0.05] * 4, [0.0] * 8])
    run(all_masked("v3", spatial_chance=1.0), model)
    assert model.dropped().all(1).tolist() == [[[True, False], [False, False]]] * 2


def test_v3_channel_mask_by_hand():
    model = FixedMaps(ones_and_twos(), WEIGHT)
    run(all_masked("v3", spatial_chance=0.0), model)  # ceil(8 / 3.2) = 3
    assert model.dropped().all((2, 3)).tolist() == [[False, True, False, True, False, True, False, False]] * 2


def test_the_loss_by_hand():
    # With weights (4, 2, 1, 1) against 0 and a map of one pixel with value a in all channels, p = 1/(1+e^-8a);
    # v3 drops ceil(4 / 3.2) = 2 channels, the 4 and the 2, which leaves 1/(1+e^-2a).
    scale = torch.tensor([0.1, 0.5, 0.02], dtype=torch.float64)
    maps = scale[:, None, None, None].expand(3, 4, 1, 1)
    model = FixedMaps(maps, [[4.0, 2.0, 1.0, 1.0], [0.0] * 4])

    def p(logit):
        return 1 / (1 + math.exp(-logit))

    drop = [p(8 * a) - p(2 * a) - 1e-4 for a in scale.tolist()]
    assert max(drop) == drop[1]  # round(3 / 3) = 1 sample keeps its mask, the second
    expected = -(math.log(p(0.8)) + math.log(p(1.0)) + math.log(p(0.16))) / 3
    loss = run(RSC(version="v3", batch_share=1 / 3, flip=False, spatial_chance=0.0), model, torch.tensor([0, 0, 0]))
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert model.dropped().any((1, 2, 3)).tolist() == [False, True, False]


def test_a_drop_within_the_margin_does_not_count():
    maps = torch.full((2, 4, 1, 1), 1e-5)
    for margin, any_dropped in ((None, False), (0.0, True)):
        model = FixedMaps(maps, [[4.0, 2.0, 1.0, 1.0], [0.0] * 4])
        run(RSC(version="v3", batch_share=1.0, margin=margin, flip=False, spatial_chance=0.0), model)
        assert bool(model.dropped().any()) is any_dropped


@pytest.mark.parametrize(("version", "margin", "share"), [("v1", 1e-4, 1 / 3), ("v2", 1e-5, 1 / 3), ("v3", 1e-4, 0.3)])
def test_published_numbers(version, margin, share):
    method = RSC(version=version)
    assert (method.numbers.margin, method.numbers.batch_share, method.numbers.flip) == (margin, share, version == "v3")


def test_the_share_of_the_batch_grows_by_the_interval_and_stops_at_all():
    method = RSC(version="v3", interval=10)
    assert [round(method.share(step), 2) for step in (0, 9, 10, 19, 20, 30, 40, 90)] == [
        *(0.3, 0.3, 0.5, 0.5, 0.7, 0.9, 1.0, 1.0)
    ]
    assert RSC(version="v3").share(10**6) == 0.3
    assert RSC(version="v1", interval=10).share(10**6) == 1 / 3


@pytest.mark.parametrize("version", ["v1", "v3"])
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_exactly_the_share_of_the_batch_is_masked(version, chance):
    torch.manual_seed(1)
    model = FixedMaps(torch.rand(30, 16, 3, 3), torch.randn(4, 16))
    labels = torch.randint(0, 4, (30,))
    # A negative margin lets every sample count, also those whose probability rises.
    for share in (0.2, 1 / 3, 0.5):
        model.maps.grad = None
        run(RSC(version=version, batch_share=share, margin=-1.0, flip=False, spatial_chance=chance), model, labels)
        assert int(model.dropped().any((1, 2, 3)).sum()) == round(30 * share)


def test_the_coin_falls_for_the_whole_batch_and_evenly():
    spatial = 0
    for step in range(200):
        model = FixedMaps(torch.rand(4, 8, 2, 2), WEIGHT)
        method = RSC(version="v3", batch_share=1.0, margin=-1.0, flip=False)
        run(method, model, torch.zeros(4, dtype=torch.int64), step=step)
        by_channel = model.dropped().all((2, 3)).any(1)
        assert by_channel.all() or not by_channel.any()
        spatial += int(not by_channel.any())
    assert 75 < spatial < 125


def test_the_third_version_joins_the_mirrored_batch():
    model = WideResNet(10, 1, num_classes=3, norm_layer=NORMS["in"]).double()
    images, labels = torch.rand(4, 3, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    doubled = torch.cat([images, torch.flip(images, (3,))]), torch.cat([labels, labels])
    for step in range(4):
        loss = RSC(version="v3").loss(model, Batch(images, labels, step))
        assert torch.equal(loss, RSC(version="v3", flip=False).loss(model, Batch(*doubled, step)))


def test_bfloat16_does_not_tie_the_scores():
    class Head(FixedMaps):
        def classify(self, embedding):
            return F.linear(embedding, self.weight)

    model = Head(torch.rand(2, 512, 2, 2), torch.randn(3, 512)).float()
    method = RSC(version="v3", batch_share=1.0, margin=-1.0, flip=False, spatial_chance=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = method.loss(model, Batch(NO_IMAGES, LABELS))
    (gradient,) = torch.autograd.grad(loss, model.maps)
    assert ((gradient == 0).all((2, 3)).sum(1) == 160).all()


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_step_leaves_modes_gradients_and_generators_alone(version):
    model = WideResNet(10, 1, num_classes=3).train()
    model.norm.eval()
    batch = Batch(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]))
    state = torch.get_rng_state()
    RSC(version=version).loss(model, batch)
    assert model.group3.training
    assert not model.norm.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.group2._forward_hooks


@pytest.mark.parametrize("norm", NORMS.names())
@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_trains_with_every_norm(norm, version):
    layer = partial(NORMS[norm])
    model = WideResNet(10, 1, num_classes=3, norm_layer=layer).double()
    images, labels = torch.rand(6, 3, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    loss = run(RSC(version=version), model, labels, images)
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("version", ["v1", "v3"])
def test_a_network_with_a_hidden_head_trains_too(version):
    model = DigitsConvNet(channels=(4, 8), hidden=8, num_classes=3)
    assert run(RSC(version=version), model, torch.tensor([0, 1, 2]), torch.rand(3, 3, 32, 32)).isfinite()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_second_version_refuses_a_network_without_stages():
    with pytest.raises(InputError, match="choose version 'v1' or 'v3'"):
        RSC(version="v2").loss(DigitsConvNet(channels=(4, 8), hidden=8), Batch(torch.rand(1, 3, 32, 32), LABELS[:1]))


def test_a_resumed_run_draws_what_an_uninterrupted_one_does():
    model = WideResNet(10, 1, num_classes=3, norm_layer=NORMS["in"])
    images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    straight, resumed = (create_method("rsc", seed=4) for _ in range(2))
    for step in range(5):
        straight.loss(model, Batch(images, labels, step))
    resumed.load_state_dict(straight.state_dict())
    for step in range(5, 10):
        assert torch.equal(*(m.loss(model, Batch(images, labels, step)) for m in (straight, resumed)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"version": "v4"}, UnknownNameError, "unknown version of RSC, 'v4'; known: v1, v2, v3"),
        ({"batch_share": 1.5}, InputError, "batch_share"),
        ({"spatial_chance": -0.5}, InputError, "spatial_chance"),
        ({"interval": -1}, InputError, "interval"),
    ],
)
def test_refuses_options_that_make_no_sense(options, error, message):
    with pytest.raises(error, match=message):
        RSC(**options)


def test_a_share_that_falls_ends_at_nothing():
    method = RSC(share_increase=-0.2, interval=1)
    assert [method.share(step) for step in (0, 100)] == [1 / 3, 0.0]
