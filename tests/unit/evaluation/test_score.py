"""Scores of domains and suites: one number whatever the batches, the processes and the mode of the model."""

import math
import os
from dataclasses import asdict, astuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet, create_suite
from asrnorm.evaluation import score, score_suite
from asrnorm.evaluation.score import evaluation_size, iterate_batches, iterate_bundles, subsample
from asrnorm.models import create_model
from helpers.processes import run_processes
from helpers.toy_suite import ToySuite, make_images


class ToyNet(nn.Module):
    """Small, with a norm and a dropout: something for every mode to change."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), norm(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Dropout())
        self.head = nn.Linear(24, 4)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))


def make_net(**options):
    torch.manual_seed(0)
    net = ToyNet(**options)
    net.body[0].weight.data.mul_(5)
    net.head.weight.data.mul_(5)
    return net


def test_a_known_model_gets_the_score_worked_out_by_hand():
    data = make_images(10)
    net = make_net().eval()
    with torch.no_grad():
        logits = net(torch.from_numpy(data.images).permute(0, 3, 1, 2).float() / 255).double()
    labels = torch.from_numpy(data.labels)
    found = score(net, data, name="toy")
    assert found.num_samples == 10
    assert found.accuracy == (logits.argmax(1) == labels).double().mean().item()
    assert found.nll == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), abs=1e-6)
    square = (logits.softmax(1) - nn.functional.one_hot(labels, 4)).square()
    assert found.brier == pytest.approx(square.mean().item(), abs=1e-7)
    assert found.brier_sum == pytest.approx(square.sum(1).mean().item(), abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 36, 37, 500])
def test_the_batch_size_is_of_no_consequence(batch_size):
    net, data = make_net().double(), make_images(37)
    alone = score(net, data, name="toy", precision="float64", batch_size=37)
    found = score(net, data, name="toy", precision="float64", batch_size=batch_size)
    assert found.accuracy == alone.accuracy
    assert astuple(found)[1:] == pytest.approx(astuple(alone)[1:], abs=1e-11)


def test_mode_and_running_statistics_stay():
    net = make_net().train()
    net.body[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    score(net, make_images(8), name="toy")
    assert net.training
    assert net.body[4].training
    assert not net.body[1].training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_bfloat16_stays_near_float32():
    net, data = make_net(), make_images(40)
    found, exact = score(net, data, name="toy", precision="bfloat16"), score(net, data, name="toy")
    assert found != exact
    assert found.nll == pytest.approx(exact.nll, rel=0.02)


def test_bn_test_depends_on_the_batch_and_on_nothing_else():
    torch.manual_seed(0)
    net = create_model("digits_convnet", norm="bn_test", channels=(4, 4), hidden=8)
    data = make_images(12, size=(32, 32))
    assert score(net, data, name="toy", batch_size=4) != score(net, data, name="toy", batch_size=6)
    assert score(net, data, name="toy", batch_size=4) == score(net, data, name="toy", batch_size=4)


def test_files_score_as_decoded_images_do(tmp_path):
    data = make_images(9)
    paths = tuple(tmp_path / f"{row}.png" for row in range(9))
    for path, image in zip(paths, data.images, strict=True):
        Image.fromarray(image).save(path)
    files = FileSet(paths, data.labels, (8, 8))
    assert score(make_net(), files, name="toy", batch_size=4) == score(make_net(), data, name="toy", batch_size=4)


def test_images_are_resized_where_asked():
    data = make_images(6, size=(12, 12))
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    assert score(net, data, name="toy", resize=(8, 8)).num_samples == 6


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.head.weight.data.fill_(math.nan),
        lambda net: net.head.bias.data[:1].fill_(math.inf),
        lambda net: setattr(net, "head", nn.Linear(24, 3)),
    ],
    ids=["nan", "infinite", "classes"],
)
def test_what_cannot_be_scored_is_one_line_with_the_domain(change):
    net = make_net().train()
    change(net)
    with pytest.raises(InputError, match=r"^domain 'toy'[^\n]*$"):
        score(net, make_images(8), name="toy")
    assert net.training


def test_an_empty_domain_is_refused():
    empty = ImageSet(np.zeros((0, 8, 8, 3), np.uint8), np.zeros(0, np.int64))
    with pytest.raises(InputError, match="'toy' has no images"):
        score(make_net(), empty, name="toy")


def score_in_process(world):
    counts = (45, 5)  # six batches, and a single one, which leaves the second process with none
    found = [score_suite(make_net(), ToySuite(count=count), batch_size=8, world=world) for count in counts]
    return [asdict(domain) for suite in found for domain in (suite.source, *suite.domains)]


def test_two_processes_give_the_bits_of_one(tmp_path):
    alone = score_in_process(ALONE)
    assert run_processes(score_in_process, 2, tmp_path) == [alone, alone]


def test_domains_count_alike_in_the_average_however_large_they_are():
    class Uneven(ToySuite):
        def load_target(self, name):
            return super().load_target(name).take(slice(0, 7 if name == "dark" else 30))

    found = score_suite(make_net(), Uneven())
    assert [domain.num_samples for domain in found.domains] == [30, 7]
    accuracies = [domain.accuracy for domain in found.domains]
    assert accuracies[0] != accuracies[1]
    assert found.average_accuracy == sum(accuracies) / 2


def test_a_suite_gives_its_source_its_targets_and_what_is_missing():
    told = []
    suite = ToySuite(targets=("bright", "absent", "dark"))
    found = score_suite(make_net(), suite, report=told.append)
    assert found.source.name == "home"
    assert [domain.name for domain in found.domains] == ["bright", "dark"]
    assert found.missing == ("absent",)
    assert found.average_accuracy == (found.domains[0].accuracy + found.domains[1].accuracy) / 2
    assert told == [found.source, *found.domains]
    assert found.source == score(make_net(), suite.source_test, name="home")


def test_without_a_target_the_average_is_not_a_number():
    found = score_suite(make_net(), ToySuite(targets=("absent",)))
    assert found.domains == ()
    assert math.isnan(found.average_accuracy)


def test_pacs_is_evaluated_at_222():
    class Pacs(ToySuite):
        name = "pacs"

    class Size(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = set()

        def forward(self, images):
            self.sizes.add(tuple(images.shape[2:]))
            return torch.zeros(len(images), 4)

    suite, net = Pacs(size=(227, 227), count=4), Size()
    assert evaluation_size(suite) == evaluation_size(suite, "pacs") == (222, 222)
    assert evaluation_size(suite, "none") == (227, 227)
    score_suite(net, suite)
    assert net.sizes == {(222, 222)}
    score_suite(net, suite, resize=None)
    assert net.sizes == {(222, 222), (227, 227)}


@pytest.mark.gpu
def test_a_gpu_gives_the_score_of_the_cpu():
    net, data = make_net().double(), make_images(300)
    wanted = score(net, data, name="toy", precision="float64")
    found = score(net.cuda(), data, name="toy", precision="float64", batch_size=100)
    assert found.accuracy == wanted.accuracy
    assert astuple(found)[1:] == pytest.approx(astuple(wanted)[1:], abs=1e-9)


def test_a_limit_takes_images_from_all_over_a_domain():
    data = ImageSet(np.zeros((100, 4, 4, 3), np.uint8), np.repeat(np.arange(4), 25))
    few = subsample(data, 8)
    assert len(few) <= 8
    assert set(few.labels) == {0, 1, 2, 3}
    assert subsample(data, 0) is data
    assert subsample(data, 100) is data


def test_a_limit_holds_for_the_source_and_every_target():
    found = score_suite(make_net(), ToySuite(count=45), limit=10)
    assert [domain.num_samples for domain in (found.source, *found.domains)] == [10, 10, 10]


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 5))
def test_processes_share_the_batches_of_one(count, batch_size, num_processes):
    data = ImageSet(np.zeros((count, 2, 2, 3), np.uint8), np.arange(count))
    alone = [(number, labels.tolist()) for number, _, labels in iterate_batches(data, batch_size)]
    shared = [
        (number, labels.tolist())
        for rank in range(num_processes)
        for number, _, labels in iterate_batches(data, batch_size, World(rank, num_processes))
    ]
    assert shared == alone
    assert sorted(label for _, labels in alone for label in labels) == list(range(count))
    sizes = [len(labels) for _, labels in alone]
    assert len(sizes) == -(-count // batch_size)
    assert not sizes or batch_size >= max(sizes) >= min(sizes) >= max(sizes) - 1


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 6), st.integers(1, 3))
def test_bundles_hold_the_same_batches_of_one_size_one_after_the_other(count, batch_size, together, num_processes):
    data = ImageSet(np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1).repeat(3, 3), np.arange(count))
    alone = list(iterate_bundles(data, batch_size, together))
    batches = [part.tolist() for bundle in alone for part in np.split(bundle.labels, bundle.batches)]
    assert batches == [labels.tolist() for _, _, labels in iterate_batches(data, batch_size)]
    assert all(bundle.batches <= together for bundle in alone)
    assert len(alone) <= -(-len(batches) // together) + 1
    assert all((bundle.images[:, 0, 0, 0] == bundle.labels).all() for bundle in alone)
    shared = [
        bundle.labels.tolist()
        for rank in range(num_processes)
        for bundle in iterate_bundles(data, batch_size, together, World(rank, num_processes))
    ]
    assert shared == [bundle.labels.tolist() for bundle in alone]


def test_files_give_the_batches_of_the_decoded_images(tmp_path):
    data = make_images(7)
    paths = tuple(tmp_path / f"{row}.png" for row in range(7))
    for path, image in zip(paths, data.images, strict=True):
        Image.fromarray(image).save(path)
    files = FileSet(paths, data.labels, (8, 8))
    for (_, images, labels), (_, read, same) in zip(iterate_batches(data, 3), iterate_batches(files, 3), strict=True):
        np.testing.assert_array_equal(images, read)
        np.testing.assert_array_equal(labels, same)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(InputError, match="batch_size"):
        next(iterate_batches(make_images(3), 0))


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


@pytest.mark.data
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
