"""Corruptions of tensors: the reference's images where nothing is random, its distribution elsewhere."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from asrnorm import Corrupt, corrupt
from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError
from asrnorm.data.corruptions import list_corruptions
from asrnorm.data.corruptions.severity import LIMITS, RANDOM, SEVERITIES, severity_options
from asrnorm.data.corruptions.tensors import TENSOR_CORRUPTIONS, apply, corrupt_batch
from asrnorm.data.corruptions.tensors.base import Settings

pytestmark = pytest.mark.usefixtures("made_up_frost")

EXACT = sorted(set(list_corruptions()) - RANDOM)
ON_DEVICE = TENSOR_CORRUPTIONS.names()


def random_images(n, height, width):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=generator)


def natural_images(n, height, width):
    """Smooth colors, a few hard edges, and flat black and white areas."""
    coarse = torch.rand((n, 3, 5, 5), generator=torch.Generator().manual_seed(1)) * 300 - 20
    images = F.interpolate(coarse, (height, width), mode="bilinear").clamp(0, 255).to(torch.uint8)
    images[:, :, : height // 4, width // 2 :] = 255
    images[:, 0, height // 2 :, : width // 3] = 0
    return images


def by_reference(images, name, **arguments):
    corrupted = corrupt(images.permute(0, 2, 3, 1).contiguous().numpy(), name, **arguments)
    return torch.from_numpy(corrupted).permute(0, 3, 1, 2)


IMAGES = torch.cat([random_images(3, 32, 32), natural_images(3, 32, 32)])


BY_REFERENCE = {"jpeg_compression", "spatter"}


def test_all_but_two_have_a_form_for_tensors():
    assert set(ON_DEVICE) == set(list_corruptions()) - BY_REFERENCE


@pytest.mark.parametrize("name", sorted(BY_REFERENCE))
def test_what_has_no_form_for_tensors_gets_the_images_of_the_reference(name):
    indices = [3, 1, 4, 1, 5, 9]
    expected = by_reference(IMAGES, name, severity=3, seed=2, indices=indices)
    for given in (indices, torch.tensor(indices)):
        assert torch.equal(corrupt(IMAGES, name, severity=3, seed=2, indices=given), expected)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("size", [(32, 32), (224, 224), (33, 47), (97, 64), (1, 5), (7, 1)], ids=str)
@pytest.mark.parametrize("make", [random_images, natural_images])
def test_what_is_not_random_is_within_a_level_of_the_reference(name, size, make):
    images = make(1 if max(size) > 64 else 2, *size)
    for severity in (1, 4) if max(size) > 64 else SEVERITIES:
        difference = corrupt(images, name, severity=severity).int() - by_reference(images, name, severity=severity)
        assert difference.abs().max() <= 1
        if make is random_images and min(size) > 7:  # flat areas may lie on the edge of a level
            assert (difference != 0).float().mean() < 0.06


@pytest.mark.parametrize("name", list_corruptions())
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (5, 2), (30, 17), (65, 3)], ids=str)
def test_any_size_works(name, size):
    images = random_images(2, *size)
    for severity, preset in ((1, "imagenet"), (3, "cifar"), (5, "imagenet")):
        corrupted = corrupt(images.float() / 255, name, severity=severity, preset=preset)
        assert corrupted.shape == images.shape
        assert corrupted.isfinite().all()


def statistics(change):
    """Return mean, deviation and power in four bands of frequencies of every image's change."""
    change = change.float()
    power = torch.fft.fft2(change.mean(1)).abs().square()
    frequency = torch.fft.fftfreq(power.shape[1])[:, None].hypot(torch.fft.fftfreq(power.shape[2]))
    bands = [power[:, (frequency >= low) & (frequency < low + 0.125)].mean(1) for low in (0, 0.125, 0.25, 0.375)]
    return torch.stack([change.mean((1, 2, 3)), change.std((1, 2, 3)), *(band.sqrt() for band in bands)], 1)


@pytest.mark.parametrize("name", sorted(RANDOM))
@pytest.mark.parametrize(("preset", "size"), [("cifar", (32, 32)), ("imagenet", (40, 48))])
def test_what_is_random_has_the_references_distribution(name, preset, size):
    images = natural_images(1, *size).expand(80, -1, -1, -1)
    strengths = []
    for severity in SEVERITIES:
        arguments = {"severity": severity, "preset": preset}
        ours, theirs = (function(images, name, **arguments).int() - images for function in (corrupt, by_reference))
        mine, other = statistics(ours), statistics(theirs)
        error = ((mine.var(0) + other.var(0)) / len(images)).sqrt()
        distance = (mine.mean(0) - other.mean(0)).abs()
        assert (distance < 4 * error + 0.03 * other.mean(0).abs() + 0.1).all(), (severity, mine.mean(0), other.mean(0))
        strengths.append([float(change.abs().float().mean()) for change in (ours, theirs)])
    for (mine, other), (my_next, other_next) in pairwise(strengths):
        if abs(other_next - other) > 0.15 * other:
            assert (my_next > mine) == (other_next > other)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_batch_split_in_two_gives_the_same_images(name):
    whole = corrupt(IMAGES, name, severity=4, seed=3)
    parts = [corrupt(IMAGES[part], name, severity=4, seed=3, indices=list(range(6))[part]) for part in SPLIT]
    assert torch.equal(whole, torch.cat(parts))
    floats = IMAGES.double() / 255
    parts = [corrupt(floats[part], name, severity=4, indices=torch.arange(6)[part]) for part in SPLIT]
    assert (corrupt(floats, name, severity=4) - torch.cat(parts)).abs().max() < 1e-6


SPLIT = (slice(0, 1), slice(1, 6))


@pytest.mark.parametrize("name", list_corruptions())
def test_seeds_matter_to_the_random_ones_alone(name):
    first, again, other = (corrupt(IMAGES, name, severity=5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name not in RANDOM)


@pytest.mark.parametrize("name", list_corruptions())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_floats_stay_floats_and_get_the_same_corruption(name, dtype):
    whole = corrupt(IMAGES, name, severity=2).float() / 255
    images = (IMAGES.float() / 255).to(dtype)
    before = images.clone()
    corrupted = corrupt(images, name, severity=2)
    assert corrupted.dtype == dtype
    assert torch.equal(images, before)
    assert corrupted.min() >= 0
    assert corrupted.max() <= 1
    difference = (corrupted.float() - whole).abs()
    if dtype == torch.bfloat16:  # rounded images, and photons that are counted differently
        assert difference.mean() < 0.02
    else:
        assert difference.max() < 1.01 / 255


@pytest.mark.parametrize("name", list_corruptions())
def test_the_memory_format_is_kept(name):
    for images in (IMAGES.contiguous(memory_format=torch.channels_last), IMAGES[:, :, :20, :30], IMAGES[:0]):
        corrupted = corrupt(images, name)
        assert corrupted.shape == images.shape
        assert torch.equal(corrupted, corrupt(images.contiguous(), name))
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    assert corrupt(last, name).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_nothing_waits_for_the_device(name):
    # A meta tensor has no values: what would read one fails.
    images = torch.empty((4, 3, 40, 48), device="meta")
    severity, keys = (torch.empty(4, dtype=torch.int64, device="meta") for _ in range(2))
    assert corrupt_batch(images, name, severity, keys).device.type == "meta"
    assert corrupt(images.to(torch.uint8), name, indices=keys).device.type == "meta"


@pytest.mark.parametrize("name", ON_DEVICE)
@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
def test_every_image_gets_its_own_severity(name, preset):
    images, keys = IMAGES.float() / 255, torch.arange(6)
    mixed = corrupt_batch(images, name, torch.arange(6), keys, preset=preset)
    assert torch.equal(mixed[0], images[0])
    for severity in SEVERITIES:
        row = slice(severity, severity + 1)
        alone = apply._apply(images[row], name, keys[row], [severity_options(name, severity, preset)])
        assert (mixed[row] - alone).abs().max() < 1e-4
        same = corrupt_batch(images, name, severity, keys, preset=preset)
        assert (mixed[row] - same[row]).abs().max() < 1e-4


def test_the_counts_of_photons_are_poissons():
    from scipy import stats

    for rate in (0.3, 4.0, 11.0, 13.0, 60.0, 400.0):
        draws = apply.Draws(torch.arange(200))
        counts = draws.poisson(torch.full((200, 1000), rate), 400.0).flatten().numpy()
        edges = np.unique(stats.poisson.ppf(np.linspace(0.02, 0.98, 20), rate))
        expected = stats.poisson.cdf(edges, rate)
        found = (counts[:, None] <= edges).mean(0)
        assert np.abs(found - expected).max() < 0.006, rate


def test_draws_are_uniform_normal_and_independent():
    draws = apply.Draws(apply._image_keys(5, None, 500, torch.device("cpu")))
    uniform, normal = draws.uniform(800), draws.normal(800)
    assert 0 < uniform.min() < uniform.max() < 1
    histogram = torch.histc(uniform, 50, 0, 1) / uniform.numel() * 50
    assert (histogram - 1).abs().max() < 0.06
    assert abs(float(normal.mean())) < 0.01
    assert float(normal.std()) == pytest.approx(1, abs=0.01)
    assert float((normal**4).mean()) == pytest.approx(3, abs=0.1)
    between = torch.corrcoef(torch.cat([uniform[:100], normal[:100]])).fill_diagonal_(0)
    assert between.abs().max() < 0.2  # of 200 streams, 800 numbers each
    assert between.std() == pytest.approx(800**-0.5, rel=0.05)


@pytest.mark.parametrize("name", sorted({*ON_DEVICE} - {"frost"}))  # whose scale enlarges pictures for seconds
def test_at_its_bounds_a_number_still_makes_images(name):
    images = IMAGES[:1, :, :12, :16].clone()
    images[:, :, :, 8:] = 0
    for option, value in severity_options(name, 3, "cifar").items():
        for bound in () if isinstance(value, bool) else LIMITS.get(f"{name}.{option}") or LIMITS[option]:
            number = int(bound) if isinstance(value, int) and float(bound).is_integer() else bound
            corrupted = corrupt(images.float() / 255, name, **{option: number})
            assert corrupted.isfinite().all(), (option, bound)


class Given:
    """Draws that are given instead of drawn."""

    def __init__(self, uniform):
        self.uniform = lambda *shape, low, high: uniform * (high - low) + low


@pytest.mark.parametrize(("height", "width", "reach", "rounds"), [(9, 12, 1, 1), (14, 11, 2, 3), (24, 24, 4, 2)])
def test_glass_copies_pixels_one_after_the_other(height, width, reach, rounds):
    uniform = torch.rand(3, 2, height * width, generator=torch.Generator().manual_seed(reach))
    images = random_images(3, height, width)
    expected = images.clone()
    offset = ((uniform * 2 - 1) * reach).floor().long().view(3, 2, height, width)
    for _ in range(rounds):
        for image, (down, right) in zip(expected, offset, strict=True):
            for row in range(height - reach, reach, -1):
                for column in range(width - reach, reach, -1):
                    there = row + down[row, column], column + right[row, column]
                    image[:, row, column] = image[:, *there]
    settings = Settings([{"sigma": 0.0, "reach": reach, "rounds": rounds}], images.device)
    glassy = TENSOR_CORRUPTIONS["glass_blur"](images.float() / 255, Given(uniform), settings)
    assert torch.equal((glassy * 255).round(), expected.float())


def test_a_module_counts_the_images_on():
    whole = corrupt(IMAGES, "gaussian_noise", severity=4, seed=1)
    layer = Corrupt("gaussian_noise", severity=4, seed=1)
    assert torch.equal(torch.cat([layer(IMAGES[part]) for part in SPLIT]), whole)
    layer.reset()
    assert torch.equal(layer(IMAGES[0]), whole[0])
    assert torch.equal(layer(IMAGES[3:], indices=[3, 4, 5]), whole[3:])
    network = torch.nn.Sequential(Corrupt("contrast", severity=1, factor=0.0), torch.nn.Flatten())
    assert network(IMAGES[:1].float() / 255)[0].unique().numel() == 3


@pytest.mark.parametrize(
    ("images", "arguments", "error"),
    [
        (IMAGES[0], {}, InputError),
        (IMAGES.permute(0, 2, 3, 1), {}, InputError),
        (IMAGES[:, :1], {}, InputError),
        (IMAGES[:, :, :0], {}, InputError),
        (IMAGES.float(), {}, InputError),
        (IMAGES.float() * torch.nan, {}, InputError),
        (IMAGES.int(), {}, InputTypeError),
        (IMAGES, {"indices": [1]}, InputError),
        (IMAGES, {"indices": torch.rand(6)}, InputTypeError),
        (IMAGES, {"severity": 6}, InputError),
        (IMAGES, {"densty": 1}, UnknownNameError),
        (IMAGES, {"density": -1}, InputError),
    ],
)
def test_wrong_calls_are_refused_in_one_line(images, arguments, error):
    with pytest.raises(error) as caught:
        corrupt(images, "fog", **arguments)
    assert "\n" not in str(caught.value)


def test_wrong_modules_and_batches_are_refused():
    for arguments in (("fogg",), ("fog", 6), ("fog", 3, {"densty": 1})):
        with pytest.raises((UnknownNameError, InputError)):
            Corrupt(*arguments[:2], **(arguments[2] if len(arguments) > 2 else {}))
    keys = torch.arange(6)
    with pytest.raises(UnknownNameError):
        corrupt_batch(IMAGES, "jpeg_compression", 3, keys)
    for severity, wrong in ((torch.ones(5).long(), keys), (torch.ones(6), keys), (3, keys[:5])):
        with pytest.raises(InputError):
            corrupt_batch(IMAGES, "fog", severity, wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("name", list_corruptions())
def test_a_gpu_gives_the_images_of_the_cpu(name):
    for images in (IMAGES, natural_images(2, 224, 200)):
        on_gpu = corrupt(images.cuda(), name, severity=3)
        assert on_gpu.device.type == "cuda"
        difference = (on_gpu.cpu().int() - corrupt(images, name, severity=3)).abs()
        # The draws have the same bits; a flake or a path may still fall on the other side of a threshold.
        assert (difference > 1).float().mean() < 0.01
        parts = [corrupt(images[part].cuda(), name, indices=range(len(images))[part]) for part in SPLIT]
        assert torch.equal(torch.cat(parts), corrupt(images.cuda(), name))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_cuda_graph_captures_a_batch(name):
    images, severity, keys = IMAGES.cuda().float() / 255, torch.arange(6).cuda(), torch.arange(6).cuda()
    expected = corrupt_batch(images, name, severity, keys)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        corrupted = corrupt_batch(images, name, severity, keys)
    graph.replay()
    assert (corrupted - expected).abs().max() < 1e-5
    keys += 100
    graph.replay()
    assert (corrupted - corrupt_batch(images, name, severity, keys)).abs().max() < 1e-5
