"""DSON in a run: branches by domain, the mean over them in evaluation, and what it refuses."""

import pytest
import torch

import asrnorm
from asrnorm.core.config import Choice
from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import InputError
from asrnorm.data.pool import Pool
from asrnorm.models import create_model
from asrnorm.models.base import DomainAverage
from asrnorm.norms import DomainMixedNorm, create_norm, set_domain
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.run import load_run, run
from asrnorm.training.trainer import Trainer
from helpers import tiny_run
from helpers.tiny_run import ToySuite, dson_config, model_bytes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


def network():
    torch.manual_seed(0)
    model = create_model("wrn_16_4", norm="dson", norm_options={"num_domains": 3}, num_classes=5)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, DomainMixedNorm):
                layer.gate.uniform_(0, 1)
                for branch in layer.domains:
                    branch.weight.uniform_(0.5, 1.5)
    return model


def test_evaluation_averages_the_predictions_of_all_branches():
    model, images = network().eval(), torch.rand(4, 3, 16, 16)
    branches = []
    for domain in range(3):
        set_domain(model, domain)
        branches.append(model(images).softmax(1))
    mean = DomainAverage(model).eval()(images).softmax(1)
    torch.testing.assert_close(mean, sum(branches) / 3)
    assert not torch.allclose(branches[0], branches[1], atol=1e-3)


def test_at_the_start_it_is_bn_for_each_domain():
    x, domain = torch.randn(6, 4, 3, 3), torch.tensor([0, 1, 0, 1, 1, 0])
    mixed, separate = create_norm("dson", 4, num_domains=2), create_norm("dsbn", 4, num_domains=2)
    for layer in (mixed, separate):
        set_domain(layer, domain)
    torch.testing.assert_close(mixed(x), separate(x))
    for ours, theirs in zip(mixed.domains, separate.domains, strict=True):
        torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_a_domain_that_is_absent_keeps_its_statistics():
    layer = create_norm("dson", 4, num_domains=3)
    set_domain(layer, torch.tensor([0, 2, 2]))
    layer(5 + torch.randn(3, 4, 3, 3))
    assert [int(branch.num_batches_tracked) for branch in layer.domains] == [1, 0, 1]
    assert torch.equal(layer.domains[1].running_mean, torch.zeros(4))
    assert layer.domains[0].running_mean.min() > 0.2


def test_copies_of_a_labelled_batch_take_its_labels():
    layer, x = create_norm("dson", 4, num_domains=2).eval(), torch.randn(3, 4, 3, 3)
    torch.nn.init.constant_(layer.domains[1].bias, 7.0)
    set_domain(layer, torch.tensor([0, 1, 0]))
    assert torch.equal(layer(torch.cat([x, x])), torch.cat([layer(x)] * 2))
    with pytest.raises(InputError, match=r"\(3,\) domain labels for a batch of 4"):
        layer(torch.randn(4, 4, 3, 3))


def test_a_run_trains_every_branch_and_resumes_to_the_same_bytes(tmp_path):
    config = dson_config(steps=12, checkpoint_every=5)
    run(config, tmp_path)
    whole = model_bytes(tmp_path)
    loaded = load_run(tmp_path, "cpu").model
    assert isinstance(loaded, DomainAverage)
    (layer,) = (module for module in loaded.modules() if isinstance(module, DomainMixedNorm))
    assert len({tuple(branch.weight.tolist()) for branch in layer.domains}) == 3
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):
        (tmp_path / name).unlink()
    run(config, tmp_path)
    assert model_bytes(tmp_path) == whole


def test_gates_have_the_rate_of_gates_and_no_decay():
    config, suite = dson_config(), ToySuite(domains=3)
    model = build_model(config, suite, 3, CPU)
    trainer = Trainer(config, model, build_method(config, CPU, ALONE), Pool(suite.train), world=ALONE, stop=1)
    (gates,) = (group for group in trainer.optimizer.param_groups if group["scale"] == 10)
    assert [tuple(p.shape) for p in gates["params"]] == [(3,)]
    assert gates["weight_decay"] == 0


def test_another_number_of_domains_than_sources_is_refused():
    with pytest.raises(InputError, match=r"'dson' has 3 domains, and the run 1 sources; set norm\.num_domains=1"):
        build_model(dson_config(), ToySuite(), 3, CPU)


def test_generated_images_have_no_domain(tmp_path):
    with pytest.raises(InputError, match="needs the domain of every image, and generated images have none"):
        run(dson_config(method=Choice(name="toy_grow"), steps=8), tmp_path)


def test_the_recipe_has_as_many_branches_as_sources():
    assert asrnorm.recipe("pacs.erm_dson", target="photo").norm.args == {"num_domains": 3}
    assert asrnorm.recipe("pacs.erm_dson", source="photo").norm.args == {"num_domains": 1}
