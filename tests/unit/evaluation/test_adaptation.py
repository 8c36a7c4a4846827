"""TTT's scores against one image at a time with torch's optimizer, and what it leaves alone."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import asrnorm
from asrnorm.core.config import override
from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.data import ImageSet
from asrnorm.evaluation.adaptation import COPIES, LEARNING_RATE, adapt_domains, draw_copies
from asrnorm.evaluation.inference import Inference
from asrnorm.methods import Batch
from asrnorm.models import create_model
from asrnorm.models.base import NormalizedInput
from asrnorm.models.rotation_resnet import find_rotation, rotation_logits
from asrnorm.training.assembly import check_config


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = create_model("resnet26_ttt", norm="gn", norm_options={"num_groups": 8}, num_classes=4)
    return NormalizedInput(network, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).double().eval()


@pytest.fixture(scope="module")
def domains():
    draw = np.random.default_rng(0)
    sets = [ImageSet(draw.integers(0, 256, (2, 8, 8, 3), np.uint8), draw.integers(0, 4, 2)) for _ in range(2)]
    return [("first", sets[0]), ("second", sets[1])]


def learn_by_hand(model, image, name, row, step):
    """One step of torch's SGD on the copies of one image, made one by one."""
    drawn = {key: value[row].tolist() for key, value in draw_copies(2, 7, name, step).items()}
    padded = F.pad(image, (4, 4, 4, 4))
    copies = []
    for top, left, flip, angle in zip(*(drawn[key] for key in ("top", "left", "flip", "angle")), strict=True):
        window = padded[:, top : top + 8, left : left + 8]
        copies.append((window.flip(2) if flip else window).rot90(angle, (1, 2)))
    assert len(copies) == COPIES
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    F.cross_entropy(rotation_logits(model, torch.stack(copies)), torch.tensor(drawn["angle"])).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("adaptation", ["slow", "online"])
def test_logits_are_those_of_one_image_at_a_time(model, domains, adaptation, monkeypatch):
    monkeypatch.setitem(asrnorm.evaluation.adaptation.STEPS, "slow", 2)
    inference = Inference.of(model, precision="float64")
    before = copy.deepcopy(model.state_dict())
    found = {number: [] for number in range(2)}
    for number, logits, labels in adapt_domains(inference, domains, adaptation, seed=7, world=ALONE):
        found[number].append(logits)
        assert len(logits) == len(labels)
    for number, (name, data) in enumerate(domains):
        expected, learner = [], copy.deepcopy(model)
        for row in range(2):
            image = inference.to_input(data.images[row : row + 1])[0]
            learner = copy.deepcopy(model) if adaptation == "slow" else learner
            for step in range(2 if adaptation == "slow" else 1):
                learn_by_hand(learner, image, name, row, step)
            expected.append(learner(image[None]).detach())
        torch.testing.assert_close(torch.cat(found[number]), torch.cat(expected), rtol=1e-8, atol=1e-10)
        assert not torch.allclose(torch.cat(expected), model(inference.to_input(data.images)), rtol=1e-3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("adaptation", ["slow", "online"])
def test_processes_share_the_work(model, domains, adaptation, monkeypatch):
    monkeypatch.setitem(asrnorm.evaluation.adaptation.STEPS, "slow", 1)
    inference = Inference.of(model, precision="float64")

    def logits_of(world):
        return {
            (number, *labels.tolist(), *logits.flatten().tolist())
            for number, logits, labels in adapt_domains(inference, domains, adaptation, seed=7, world=world)
        }

    shared = [logits_of(World(rank, 2)) for rank in range(2)]
    assert sum(map(len, shared)) == 4
    assert not shared[0] & shared[1]


def test_the_branch_starts_as_a_copy_of_the_last_stage_and_is_trained():
    network = create_model("resnet26_ttt", norm="gn", num_classes=4)
    assert all(
        torch.equal(value, network.rotation.stage.state_dict()[name])
        for name, value in network.layer3.state_dict().items()
    )
    method, images = asrnorm.create_method("ttt"), torch.rand(3, 3, 16, 16)
    method.build(network, images)
    assert not method.parameters()
    loss = method.loss(network, Batch(images, torch.tensor([0, 1, 2])))
    turned = torch.cat([images.rot90(count, (2, 3)) for count in range(4)])
    angle = torch.arange(4).repeat_interleave(3)
    expected = F.cross_entropy(network(images), torch.tensor([0, 1, 2]))
    torch.testing.assert_close(loss, expected + F.cross_entropy(rotation_logits(network, turned), angle))
    loss.backward()
    assert all(p.grad is not None for p in network.parameters())


def test_a_network_without_a_branch_is_refused():
    config = asrnorm.recipe("cifar10c.erm_bn")
    with pytest.raises(InputError, match="adapt=slow needs a network with a rotation branch: set model=resnet26_ttt"):
        check_config(override(config, {"adapt": "slow"}))
    inference = Inference.of(create_model("wrn_16_4"))
    with pytest.raises(InputError, match="model=resnet26_ttt, and WideResNet has none"):
        list(adapt_domains(inference, [], "slow", seed=0, world=ALONE))
    assert find_rotation(inference.model) is None
