"""`asrnorm.capture` on a GPU: to the bit the plain loop, and the plain function where nothing can be captured."""

import logging
import os

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

import asrnorm
from helpers.own_loop import STEPS, Loop, assert_same, make_batches, make_model

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("deterministic")]


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def rate():
    return torch.tensor(0.05, device="cuda")


# In the form that `capture` chooses, so that both loops take the same steps to the bit.
OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=rate(), momentum=0.9, weight_decay=1e-3, nesterov=True, fused=True),
    "adamw": lambda p: AdamW(p, lr=rate(), fused=True, capturable=True),
    "rmsprop": lambda p: RMSprop(p, lr=rate(), capturable=True),
}
# The first step must not overflow: PyTorch's fused SGD would then begin with a momentum of uninitialized memory.
OPTIONS = {
    "plain": {},
    "clip": {"clip": 0.5},
    "bfloat16": {"autocast": torch.bfloat16},
    "float16": {"autocast": torch.float16, "scale": 2.0**14},
    "float16-clip": {"autocast": torch.float16, "scale": 2.0**14, "clip": 0.5},
    "dropout": {"dropout": 0.3},
}


def pair(make_optimizer, **options):
    return Loop(make_optimizer, "cuda", **options), Loop(make_optimizer, "cuda", **options)


def count_graphs(step):
    return sum(recorded is not None for recorded in step._recorded.values())


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_the_steps_are_those_of_the_plain_loop(optimizer, options, scheduled):
    plain, other = pair(OPTIMIZERS[optimizer], **OPTIONS[options])
    schedulers = [LambdaLR(loop.optimizer, lambda step: 0.9**step) if scheduled else None for loop in (plain, other)]
    step = other.capture()
    expected = plain.train(plain.step, scheduler=schedulers[0])
    assert_same(other.train(step, scheduler=schedulers[1]), expected)
    assert step.reason is None
    assert count_graphs(step) == 1


def test_an_optimizer_that_is_only_capturable():
    plain, other = pair(OPTIMIZERS["rmsprop"])
    step = other.capture()
    assert_same(other.train(step), plain.train(plain.step))
    assert count_graphs(step) == 1


@pytest.mark.parametrize("make_optimizer", [lambda p: SGD(p, lr=0.05, momentum=0.9), lambda p: Adam(p, lr=1e-3)])
def test_an_optimizer_as_users_write_it(make_optimizer):
    plain, other = pair(make_optimizer)
    step = other.capture()
    expected = plain.train(plain.step, scheduler=CosineAnnealingLR(plain.optimizer, STEPS))
    found = other.train(step, scheduler=CosineAnnealingLR(other.optimizer, STEPS))
    for one, two in zip(expected[1].values(), found[1].values(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    assert count_graphs(step) == 1


def test_other_shapes_and_modes():
    plain, other = pair(OPTIMIZERS["sgd"])
    step = other.capture()
    for loop, take in ((plain, plain.step), (other, step)):
        loop.train(take, sizes=(8, 8, 4))
        loop.model.eval()
    assert_same(other.train(step), plain.train(plain.step))
    assert count_graphs(step) == 3


def test_a_scaler_of_an_optimizer_as_users_write_it():
    plain, other = pair(lambda p: SGD(p, lr=0.05, momentum=0.9), autocast=torch.float16, scale=2.0**14)
    step = other.capture()
    expected, found = plain.train(plain.step), other.train(step)
    assert expected[4] == found[4]  # the scale and the number of steps since it changed
    assert expected[4]["scale"] < 2.0**20
    assert count_graphs(step) == 1


def test_random_numbers_go_on_as_in_the_plain_loop():
    plain, other = pair(OPTIMIZERS["sgd"], dropout=0.5)
    for loop, take in ((plain, plain.step), (other, other.capture())):
        loop.train(take)
        loop.after = torch.rand(4, device="cuda")
    assert torch.equal(plain.after, other.after)


def test_gradients_add_up_over_calls():
    outcomes = []
    for is_captured in (True, False):
        loop = Loop(OPTIMIZERS["sgd"], "cuda")

        def micro_step(batch, model=loop.model):
            loss = torch.nn.functional.cross_entropy(model(batch["images"]), batch["target"][0])
            loss.backward()
            return loss.detach()

        batches = list(make_batches("cuda"))
        take = asrnorm.capture(micro_step, batches[0], model=loop.model) if is_captured else micro_step
        for number, batch in enumerate(batches):
            take(batch)
            if number % 4 == 3:
                loop.optimizer.step()
                loop.optimizer.zero_grad()
        outcomes.append(loop.model.state_dict())
        assert not is_captured or count_graphs(take) == 2
    assert_same(*outcomes)


def test_a_replay_waits_for_nothing():
    loop = Loop(OPTIMIZERS["adamw"], "cuda", clip=1.0)
    step = loop.capture()
    loop.train(step)
    batches = list(make_batches("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [step(batch) for batch in batches]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len({float(result["loss"]) for result in results}) == STEPS


@pytest.mark.parametrize("training", [False, True])
def test_a_network_is_replayed_with_the_weights_of_the_moment(training):
    loop = Loop(OPTIMIZERS["sgd"], "cuda")
    evaluate = asrnorm.capture(loop.model, torch.rand(8, 3, 8, 8, device="cuda"))
    for batch in make_batches("cuda"):
        loop.model.train()
        loop.step(batch)
        loop.model.train(training)
        with torch.no_grad():
            assert torch.equal(evaluate(batch["images"]), loop.model(batch["images"]))
    assert count_graphs(evaluate) == 1


FAULTS = {
    "reads": lambda loop, batch: float(loop.model[0].weight.sum()),
    "waits": lambda loop, batch: torch.cuda.synchronize(),
    "uploads": lambda loop, batch: torch.ones(3).cuda(non_blocking=True),
    "draws": lambda loop, batch: torch.rand(()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_that_cannot_be_captured_runs_plainly(fault, caplog):
    plain, other = pair(OPTIMIZERS["sgd"], dropout=0.3)

    def step(batch):
        FAULTS[fault](other, batch)
        return other.step(batch)

    captured = asrnorm.capture(step, next(make_batches("cuda")), model=other.model, optimizer=other.optimizer)
    with caplog.at_level(logging.WARNING, "asrnorm"):
        found = other.train(captured)
    if fault == "draws":
        assert captured.reason
    else:
        assert_same(found, plain.train(plain.step))
        assert captured.reason
    assert len([record for record in caplog.records if "step is not captured" in record.getMessage()]) == 1


def test_inputs_on_the_cpu_run_plainly():
    model = make_model("cuda").eval()
    images = torch.rand(4, 3, 8, 8)

    def forward(images):
        with torch.no_grad():
            return model(images.cuda())

    call = asrnorm.capture(forward, images, model=model)
    assert torch.equal(call(images), forward(images))
    assert "on cpu" in call.reason


def test_a_graph_of_autograd_that_is_still_alive():
    plain, other = pair(OPTIMIZERS["sgd"])
    batch = next(make_batches("cuda"))
    kept = [loop.model(batch["images"]).sum() for loop in (plain, other)]  # its accumulators belong to another stream
    step = other.capture()
    assert_same(other.train(step), plain.train(plain.step))
    assert len(kept) == 2


@pytest.mark.parametrize("name", ["erm", "rda", "cutout", "pgd"])
def test_a_method_whose_numbers_are_drawn_outside(name):
    outcomes = []
    for way in ("plain", "drawn outside", "counted inside"):
        loop, method = Loop(OPTIMIZERS["sgd"], "cuda"), asrnorm.create_method(name, seed=0)

        def take(images, labels, number=0, drawn=None, loop=loop, method=method):
            batch = (images, labels) if drawn is None else asrnorm.Batch(images, labels, number, drawn=drawn)
            loss = method.loss(loop.model, batch)
            loop.optimizer.zero_grad()
            loss.backward()
            loop.optimizer.step()

        batches = [(batch["images"], batch["target"][0]) for batch in make_batches("cuda")]
        if way != "plain":
            take = asrnorm.capture(take, *batches[0], model=loop.model, optimizer=loop.optimizer)
        for number, batch in enumerate(batches):
            drawn = {key: value.cuda() for key, value in method.draw(number, len(batch[1])).items()}
            take(*batch) if way == "counted inside" else take(*batch, 0, drawn)
        outcomes.append(loop.model.state_dict())
        assert way != "drawn outside" or (take.reason is None and count_graphs(take) == 1)
        assert way != "counted inside" or (take.reason is None) == (name == "erm")
    assert_same(outcomes[1], outcomes[0])
    assert_same(outcomes[2], outcomes[0])


def test_lightning():
    lightning = pytest.importorskip("lightning")

    class Manual(lightning.LightningModule):
        def __init__(self, is_captured):
            super().__init__()
            self.automatic_optimization = False
            self.loop = Loop(OPTIMIZERS["adamw"], "cpu")
            self.model, self.is_captured, self.take = self.loop.model, is_captured, None

        def training_step(self, batch, _):
            if self.take is None:
                optimizer = self.loop.optimizer = self.optimizers(use_pl_optimizer=False)
                self.loop.device = "cuda"
                capture = {"model": self.model, "optimizer": optimizer}
                self.take = asrnorm.capture(self.loop.step, batch, **capture) if self.is_captured else self.loop.step
            self.log("loss", self.take(batch)["loss"])

        def configure_optimizers(self):
            return OPTIMIZERS["adamw"](self.parameters())

    outcomes = []
    for is_captured in (True, False):
        module = Manual(is_captured)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=2, enable_model_summary=False, **quiet)
        trainer.fit(module, torch.utils.data.DataLoader(list(make_batches("cpu")), batch_size=None))
        outcomes.append([value.cpu() for value in module.model.state_dict().values()])
        assert not is_captured or (module.take.reason is None and count_graphs(module.take) == 1)
    assert_same(*outcomes)


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_accelerate(precision):
    accelerate = pytest.importorskip("accelerate")
    outcomes = []
    for is_captured in (True, False):
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator(mixed_precision=precision)
        loop = Loop(OPTIMIZERS["adamw"], "cuda")
        model, optimizer, loader = accelerator.prepare(
            loop.model, loop.optimizer, torch.utils.data.DataLoader(list(make_batches("cpu")), batch_size=None)
        )

        def take(batch, model=model, optimizer=optimizer, accelerator=accelerator):
            loss = torch.nn.functional.cross_entropy(model(batch["images"]), batch["target"][0])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            return loss

        if is_captured:
            take = asrnorm.capture(take, next(iter(loader)), model=model, optimizer=optimizer)
        for _ in range(2):
            losses = [take(batch) for batch in loader]
        outcomes.append([losses, accelerator.unwrap_model(model).state_dict()])
        assert not is_captured or (take.reason is None and count_graphs(take) == 1)
    assert_same(*outcomes)
