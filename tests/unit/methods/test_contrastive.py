"""CCSA and d-SNE against loops over pairs."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from helpers.smooth_net import SmoothNet, random_images


def test_ccsa_is_the_mean_over_all_pairs_of_a_class_and_thrice_as_many_others():
    (images, labels), model = random_images(12), SmoothNet()
    method = asrnorm.create_method("ccsa", alpha=0.3, margin=1.2, seed=4)
    embedding = model.embed(images).detach().numpy()
    pairs = list(itertools.combinations(range(12), 2))
    chance = method.draw(2, 12)["chance"].tolist()
    same = [pair for pair in pairs if labels[pair[0]] == labels[pair[1]]]
    others = sorted((draw, pair) for draw, pair in zip(chance, pairs, strict=True) if pair not in same)
    others = [pair for _, pair in others[: 3 * len(same)]]
    distance = {(i, j): np.linalg.norm(embedding[i] - embedding[j]) for i, j in pairs}
    total = sum(distance[pair] ** 2 for pair in same) + sum(max(0, 1.2 - distance[pair]) ** 2 for pair in others)
    expected = 0.7 * F.cross_entropy(model(images), labels) + 0.3 * total / (len(same) + len(others))
    torch.testing.assert_close(method.loss(model, Batch(images, labels, 2)), expected)
    assert len(same) > 0
    assert len(same) + len(others) < len(pairs)


@pytest.mark.parametrize("normalize", [True, False])
def test_dsne_compares_the_farthest_of_a_class_with_the_nearest_of_another_in_both_roles(normalize):
    (images, labels), model = random_images(12), SmoothNet()
    embedding = model.embed(images).detach().numpy()
    if normalize:
        embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    hinges = []
    for streams in ((range(6), range(6, 12)), (range(6, 12), range(6))):
        for t in streams[1]:
            distances = {s: float(((embedding[s] - embedding[t]) ** 2).sum()) for s in streams[0]}
            same = [distances[s] for s in streams[0] if labels[s] == labels[t]]
            others = [distances[s] for s in streams[0] if labels[s] != labels[t]]
            hinges.append(max(0.0, max(same, default=0.0) - min(others) + 0.5))
    expected = 0.8 * F.cross_entropy(model(images), labels) + 0.2 * np.mean(hinges)
    method = asrnorm.create_method("dsne", alpha=0.2, margin=0.5, normalize=normalize)
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), expected)
    assert min(hinges) < max(hinges)


@pytest.mark.parametrize("name", ["ccsa", "dsne"])
@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [1, 1, 1, 1], [2]], ids=str)
def test_batches_without_a_pair_of_one_kind_have_finite_slopes(name, labels):
    images, _ = random_images(1)
    model = SmoothNet()
    batch = Batch(images.expand(len(labels), -1, -1, -1), torch.tensor(labels))  # distances of zero
    asrnorm.create_method(name).loss(model, batch).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("option", [{"alpha": 1.5}, {"margin": -1.0}])
@pytest.mark.parametrize("name", ["ccsa", "dsne"])
def test_numbers_out_of_range_are_refused(name, option):
    with pytest.raises(InputError, match=f"{name}: {next(iter(option))} must be "):
        asrnorm.create_method(name, **option)
