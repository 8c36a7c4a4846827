import dataclasses
import json

import pytest
import torch

from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import DivergenceError
from asrnorm.data.pool import Pool
from asrnorm.training import load_run, run
from asrnorm.training.assembly import build_method, build_model, prepare_model
from asrnorm.training.trainer import Trainer
from helpers.tiny_run import Choice, ToySuite, kept_pool, pretrained_config, tiny_config, write_weights

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float64"])
@pytest.mark.parametrize("norm", ["bn", "asr"])
def test_every_precision_learns_the_toy(precision, norm, tmp_path):
    config = tiny_config(
        device="cuda", precision=precision, norm=Choice(name=norm), method=Choice(name="toy_grow"), augment="pacs"
    )
    assert run(config, tmp_path / "a").source.accuracy > 0.6
    assert json.loads((tmp_path / "a" / "env.json").read_text())["gpu"]
    assert next(load_run(tmp_path / "a", device="cpu").model.parameters()).device.type == "cpu"


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float64"])
def test_a_pretrained_network_is_prepared_as_on_the_cpu(precision, tmp_path):
    config = pretrained_config(write_weights(tmp_path / "w.pt"), precision=precision, augment="pacs")
    suite, models = ToySuite(), []
    for device in (torch.device("cpu"), CUDA):
        models.append(build_model(config, suite, 3, device))
        prepare_model(models[-1], config, Pool(suite.train, device))
    theirs = models[1].state_dict()
    for name, value in models[0].state_dict().items():
        torch.testing.assert_close(theirs[name].cpu(), value, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("augment", ["none", "cifar", "pacs"])
@pytest.mark.parametrize("method", ["erm", "toy_noise"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_waits_for_nothing(augment, method, optimizer):
    optim = dataclasses.replace(tiny_config().optim, name=optimizer)
    config = tiny_config(
        augment=augment, method=Choice(name=method), optim=optim, norm=Choice(name="asr"), capture=False
    )
    suite = ToySuite()
    pool = Pool(suite.train, CUDA)
    trainer = Trainer(
        config, build_model(config, suite, 3, CUDA), build_method(config, CUDA, ALONE), pool, world=ALONE, stop=30
    )
    trainer.model.train()
    pool.append(torch.rand(20, 3, 8, 8), torch.zeros(20, dtype=torch.long))
    for _ in range(3):
        trainer._advance()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            trainer._advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer.step == 8


def test_a_bad_loss_is_traced_to_its_step_and_layer(tmp_path):
    config = tiny_config(device="cuda", method=Choice(name="toy_noise", args={"bad_step": 17}), log_every=10)
    with pytest.raises(DivergenceError, match=r"step 18: the loss is (nan|inf); the output of layer 'backbone\.h"):
        run(config, tmp_path / "a")


def test_stopping_and_going_on_ends_in_the_same_place(tmp_path):
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        config = tiny_config(device="cuda", precision="float64", method=Choice(name="toy_grow"))
        with kept_pool():
            run(config, tmp_path / "a")
        whole = {name: value.clone() for name, value in load_run(tmp_path / "a").model.state_dict().items()}
        (tmp_path / "a" / "result.json").unlink()
        (tmp_path / "a" / "checkpoints" / "last.pt").unlink()
        run(config, tmp_path / "a")
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in load_run(tmp_path / "a").model.state_dict().items():
        assert torch.allclose(value.double(), whole[name].double(), rtol=1e-9), name


@pytest.mark.filterwarnings("ignore")  # of the compiler's own making
def test_compiled_parts_train(tmp_path):
    result = run(tiny_config(device="cuda", compile=True, method=Choice(name="toy_grow")), tmp_path / "a")
    assert result.source.accuracy > 0.6
