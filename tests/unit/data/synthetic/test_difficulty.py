"""The domains make a benchmark: a plain network loses much of its accuracy on each, yet is far from chance."""

import pytest
import torch
from torch import nn

from asrnorm.data.synthetic import build_digits_mini

STEPS, BATCH = 300, 64


def to_tensor(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


def train_plain_network(images, labels):
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 10)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    x, y = to_tensor(images), torch.from_numpy(labels)
    for rows in torch.randint(len(y), (STEPS, BATCH)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()
    return network.eval()


@pytest.mark.slow
def test_targets_are_much_harder_than_the_source_but_not_hopeless():
    parts = build_digits_mini()
    network = train_plain_network(*parts["mnist_train"])
    with torch.no_grad():
        accuracy = {
            name: (network(to_tensor(images)).argmax(1).numpy() == labels).mean()
            for name, (images, labels) in parts.items()
        }
    assert accuracy.pop("mnist_test") > 0.93
    for name in ("uci", "blended", "rendered", "inverted"):
        assert 0.25 < accuracy[name] < 0.80, accuracy
