import dataclasses
import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file

from asrnorm import recipe
from asrnorm.core.config import Choice, OptimConfig, content_hash
from asrnorm.core.errors import ConversionError, InputError
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.data.pool import Pool
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import subsample
from asrnorm.models import MODELS, create_model
from asrnorm.norms import NORMS, ASRNorm2d
from asrnorm.training.assembly import build_like, build_model, check_config, choose_device, prepare_model, rehearse
from asrnorm.training.batches import Batches
from asrnorm.training.run import load_run, run
from helpers.tiny_run import ToyNet, ToySuite, pretrained_config, tiny_config, write_weights

CPU = torch.device("cpu")


@pytest.fixture
def resnet_weights(tmp_path):
    network = create_model("resnet18", num_classes=3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("norm", "count"), [("asr", 10), ("in", 10), ("gn", 10), ("sn", 10), ("bin", 10), ("ilm", 10), ("bn_test", 20)]
)
def test_layers_that_were_picked_are_those_of_the_start(resnet_weights, norm, count, normalized, monkeypatch):
    suite = ToySuite()
    if normalized:
        monkeypatch.setattr(ToySuite, "mean", (0.5, 0.5, 0.5))
        monkeypatch.setattr(ToySuite, "std", (0.2, 0.2, 0.2))
    config = tiny_config(
        model=Choice(name="resnet18"), norm=Choice(name=norm), weights=str(resnet_weights), layers="auto"
    )
    first = build_model(config, suite, 3, CPU).eval()
    again = build_like(config, suite, 3, CPU, first.state_dict()).eval()
    assert sum(type(module) is NORMS[norm] for module in again.modules()) == count
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(first(images), again(images))


@pytest.mark.parametrize("options", [{}, {"eps": 0.5, "momentum": 0.01}])
def test_bn_of_a_pretrained_network_has_its_options_at_the_start_and_when_built_again(resnet_weights, options):
    norm = Choice(name="bn", args=options)
    config = tiny_config(model=Choice(name="resnet18"), norm=norm, weights=str(resnet_weights), layers="auto")
    first = build_model(config, ToySuite(), 3, CPU).eval()
    again = build_like(config, ToySuite(), 3, CPU, first.state_dict()).eval()
    for model in (first, again):
        assert {(bn.eps, bn.momentum) for bn in model.modules() if isinstance(bn, torch.nn.BatchNorm2d)} == {
            (options.get("eps", 1e-5), options.get("momentum", 0.1))
        }
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(first(images), again(images))


def test_a_model_with_other_outputs_than_classes_is_refused(monkeypatch):
    monkeypatch.setitem(MODELS._entries, "five", lambda *, norm_layer: ToyNet(num_classes=5, norm_layer=norm_layer))
    config = tiny_config(model=Choice(name="five"), norm=Choice(name="bn"))
    with pytest.raises(InputError, match="model 'five' has 5 outputs, the suite 3 classes; let it take num_classes"):
        build_model(config, ToySuite(), 3, CPU)


def test_fewer_outputs_than_classes_are_refused_and_more_are_not():
    def config(outputs):
        return tiny_config(model=Choice(name="wrn_16_4", args={"num_classes": outputs}), norm=Choice(name="bn"))

    with pytest.raises(InputError, match=r"model.num_classes=2: the suite has 3 classes; leave it out, or give more"):
        build_model(config(2), ToySuite(), 3, CPU)
    assert build_model(config(4), ToySuite(), 3, CPU).num_classes == 4


@pytest.mark.parametrize(("field", "option"), [("norm", "dtype"), ("norm", "device"), ("model", "norm_layer")], ids=str)
def test_what_a_run_fills_in_itself_is_refused(field, option):
    base = tiny_config(model=Choice(name="wrn_16_4"), norm=Choice(name="asr"))
    changed = replace(base, **{field: Choice(name=getattr(base, field).name, args={option: "x"})})
    with pytest.raises(InputError, match=rf"{option}"):
        check_config(changed)


def test_a_method_that_differentiates_twice_is_not_compiled():
    with pytest.raises(InputError, match=r"m_ada differentiates twice, which torch\.compile cannot"):
        check_config(tiny_config(method=Choice(name="m_ada"), compile=True))
    check_config(tiny_config(method=Choice(name="ada"), compile=True))


def test_layers_without_weights_to_convert_are_refused():
    with pytest.raises(InputError, match="layers=erly chooses norms of a pretrained network: it needs weights"):
        check_config(tiny_config(layers="erly"))


def test_a_rehearsal_needs_no_weights_and_refuses_layers_that_are_not_there():
    pretrained = {"model": Choice(name="resnet18"), "norm": Choice(name="asr"), "weights": "weights/nowhere.pth"}
    for layers in ("auto", "early", "layer1.*"):
        rehearse(tiny_config(**pretrained, layers=layers))
    with pytest.raises(ConversionError, match="did you mean 'early'"):
        rehearse(tiny_config(**pretrained, layers="erly"))
    with pytest.raises(ConversionError, match="preset 'resnet-12' is for ResNets of basic blocks"):
        rehearse(tiny_config(**{**pretrained, "model": Choice(name="resnet50")}, layers="resnet-12"))


def test_a_rehearsal_makes_networks_whose_constructors_read_values(monkeypatch):
    def reading(*, norm_layer, num_classes=3, rates=3):
        return ToyNet(norm_layer=norm_layer, num_classes=num_classes, dropout=torch.linspace(0, 0.1, rates)[-1].item())

    monkeypatch.setitem(MODELS._entries, "reading", reading)
    state = torch.get_rng_state()
    rehearse(tiny_config(model=Choice(name="reading")))
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(IndexError):  # its own error, as training would give it
        rehearse(tiny_config(model=Choice(name="reading", args={"rates": 0})))


def test_weights_that_are_not_there_are_told_with_a_file_that_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    config = tiny_config(model=Choice(name="resnet18"), weights=recipe("pacs.erm_asr").weights)
    with pytest.raises(InputError, match=r"no such file of weights; try: asrnorm data fetch resnet18, and --set weig"):
        build_model(config, ToySuite(), 3, CPU)


def test_weights_beside_the_user_are_told_with_their_whole_path(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.pt").touch()
    config = tiny_config(model=Choice(name="resnet18"), weights="my.pt")
    with pytest.raises(InputError, match=f"to take the one that is here, give {tmp_path / 'my.pt'}$"):
        build_model(config, ToySuite(), 3, CPU)


STATIC = ("gamma_bias", "beta_bias")


@pytest.fixture
def weights(tmp_path):
    return write_weights(tmp_path / "weights.pt")


def prepared(config):
    suite = ToySuite()
    model = build_model(config, suite, 3, CPU)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prepare_model(model, config, Pool(suite.train))
    return model, before


@pytest.mark.parametrize("options", [{}, {"calibrate": 2}, {"reestimate": 2}, {"calibrate": 2, "reestimate": 2}])
def test_only_what_is_asked_for_is_changed(options, weights):
    config = pretrained_config(weights, **{"calibrate": 0, "reestimate": 0, **options})
    model, before = prepared(config)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    expected = {f"backbone.norm.{name}" for name in STATIC if "calibrate" in options}
    running = ("running_mean", "running_var", "num_batches_tracked")
    expected |= {f"backbone.norm.{name}" for name in running if "reestimate" in options}
    assert changed == expected
    assert model.training


def test_the_images_are_those_of_the_first_steps_as_training_augments_them(weights):
    config = pretrained_config(weights, calibrate=0, reestimate=2, augment="cifar", seed=4)
    model, _ = prepared(config)
    batches = Batches(Pool(ToySuite().train), batch_size=16, seed=4, augment="cifar")
    with torch.no_grad():
        maps = [model.backbone.conv((batches.fetch(step).images - model.mean) / model.std) for step in range(2)]
    mean = torch.stack([x.mean((0, 2, 3)) for x in maps]).mean(0)
    torch.testing.assert_close(model.get_buffer("backbone.norm.running_mean"), mean)


def test_a_fresh_run_is_prepared_and_a_resumed_one_is_not(weights, tmp_path, monkeypatch):
    config = pretrained_config(weights, steps=6, checkpoint_every=3)
    calls = []
    module = import_module("asrnorm.training.run")  # the package has a function of that name
    prepare = module.prepare_model
    monkeypatch.setattr(module, "prepare_model", lambda *arguments: (calls.append(1), prepare(*arguments)))
    result = run(config, tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    (tmp_path / "a" / "checkpoints" / "last.pt").unlink()  # the previous one is of step 3
    assert run(config, tmp_path / "a").average_accuracy == result.average_accuracy
    assert len(calls) == 1


def test_the_first_steps_leave_the_pretrained_part_alone(weights, tmp_path):
    config = pretrained_config(weights, steps=5, checkpoint_every=4, log_every=1)
    run(config, tmp_path / "a")
    store = torch.load(tmp_path / "a" / "checkpoints" / "previous.pt", weights_only=True)["model"]
    pretrained = torch.load(weights, weights_only=True)
    assert torch.equal(store["backbone.conv.weight"], pretrained["conv.weight"])
    assert not torch.equal(store["backbone.head.weight"], pretrained["head.weight"])
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert [row["lr"] for row in rows] == pytest.approx([0.05 / 3, 0.1 / 3, 0.05, 0.05, 0.05])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, "calibrate needs a pretrained network"),
        ({"norm": Choice(name="bn")}, "calibrate needs a pretrained network"),
        ({"weights": None, "calibrate": 0}, "norm_warmup_steps"),
    ],
)
def test_what_has_nothing_to_act_on_is_refused_before_a_folder_is_made(changes, message, weights, tmp_path):
    with pytest.raises(InputError, match=message):
        run(dataclasses.replace(pretrained_config(weights), **changes), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_no_running_statistics_to_estimate_is_an_error(tmp_path):
    with pytest.raises(ConversionError, match="no norm with running statistics"):
        run(tiny_config(norm=Choice(name="asr"), optim=OptimConfig(), reestimate=1), tmp_path / "a")


@pytest.fixture
def config():
    return recipe("digits_mini.erm_asr", scale="smoke")


def norms_of(model):
    return [module for module in model.modules() if isinstance(module, ASRNorm2d)]


def test_limits_are_those_of_the_training_images_and_lie_with_the_weights(config, tmp_path):
    run(replace(config, confine=20), tmp_path / "confined")
    run(config, tmp_path / "free")
    confined, free = load_run(tmp_path / "confined"), load_run(tmp_path / "free")
    assert all(layer.limits is not None for layer in norms_of(confined.model))
    assert all(layer.limits is None for layer in norms_of(free.model))
    assert not any("shift" in name for name in load_file(tmp_path / "free" / "model.safetensors"))
    # The same training, then a pass over twenty images that are spread over the set.
    images = torch.from_numpy(subsample(free.suite.train, 20).images.copy()).permute(0, 3, 1, 2).float() / 255
    first = norms_of(free.model)[0]
    with torch.no_grad():
        shift = first.learned_shift(free.model.conv1(images))
    torch.testing.assert_close(norms_of(confined.model)[0].shift_most, shift.amax(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norms_of(confined.model)[0].shift_least, shift.amin(0), rtol=1e-4, atol=1e-5)


def test_free_runs_keep_their_hash_and_confined_ones_have_another(config):
    assert content_hash(replace(config, confine=0)) == content_hash(config)
    assert content_hash(replace(config, confine=20)) != content_hash(config)


@pytest.mark.parametrize("name", ["digits_mini.erm_bn", "digits_mini.erm_ar", "digits_mini.erm_none"])
def test_norms_without_a_learned_mean_are_refused_before_training(name):
    with pytest.raises(InputError, match="confine is for norms that learn their standardization"):
        check_config(replace(recipe(name, scale="smoke"), confine=20))


def test_a_compiled_run_and_a_negative_number_are_refused(config):
    with pytest.raises(InputError, match="compiled layers"):
        check_config(replace(config, confine=20, compile=True))
    with pytest.raises(InputError, match="confine must be at least 0"):
        replace(config, confine=-1)


def test_norms_of_ones_own_are_judged_by_the_layers_they_make(config, tmp_path, monkeypatch):
    class RescaleOnly(ASRNorm2d):
        def __init__(self, num_features, **options):
            super().__init__(num_features, standardize=False, **options)

    monkeypatch.setitem(NORMS._entries, "thin_asr", lambda num_features: ASRNorm2d(num_features, stan_ratio=4))
    monkeypatch.setitem(NORMS._entries, "rescale_only", RescaleOnly)
    run(replace(config, norm=Choice(name="thin_asr"), confine=20), tmp_path / "subsample")
    with pytest.raises(InputError, match=r"confine is for norms that learn .* not 'rescale_only'"):
        run(replace(config, norm=Choice(name="rescale_only"), confine=20), tmp_path / "rescale")
    assert not list((tmp_path / "rescale").glob("checkpoints/*"))


def test_limits_are_found_in_the_precision_that_they_are_used_in(config, tmp_path):
    config = replace(config, precision="bfloat16", confine=20)
    run(config, tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    inference = Inference.of(loaded.model, precision="bfloat16")
    images = inference.to_input(subsample(loaded.suite.train, 20).images)
    with torch.no_grad():
        confined = inference.logits(images)
        for layer in norms_of(loaded.model):
            layer.confine(None, None)
        assert torch.equal(inference.logits(images), confined)


@pytest.mark.parametrize("name", ["meta", "xpu:0"])
def test_a_device_that_nothing_here_runs_on_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}' cannot be used: it must be one of auto, cpu, cuda, mps$"):
        choose_device(name)


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_what_is_no_device_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}': ") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)


def test_what_auto_is_can_be_said_in_the_environment(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda")
    assert choose_device("cpu") == torch.device("cpu")


def test_a_run_whose_gpu_is_gone_says_so_and_does_not_turn_to_the_cpu(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InputError, match=r"^ASRNORM_DEVICE 'cuda': this machine has no CUDA .*; set ASRNORM_DEVICE=cpu$"
    ):
        choose_device("auto")
