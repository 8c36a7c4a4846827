"""Pretrained weights from files, whole, partial, damaged and hostile."""

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.models import load_weights
from asrnorm.models.base import NormalizedInput
from asrnorm.models.weights import pack_state, read_state, unwrap_state
from asrnorm.norms import ASRNorm2d


def trained_resnet18(num_classes=1000):
    model = asrnorm.create_model("resnet18", num_classes=num_classes)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(0.5 + 0.1 * torch.rand(tensor.shape, generator=generator))
    return model


def backbone(model, dtype=torch.float16):
    """As published in half precision: no classifier, no running statistics."""
    dropped = ("fc.", "running", "num_batches")
    return {k: v.to(dtype) for k, v in model.state_dict().items() if not any(d in k for d in dropped)}


def test_a_whole_pth_file_loads_whole(tmp_path):
    source = trained_resnet18()
    torch.save(source.state_dict(), tmp_path / "resnet18.pth")
    model = asrnorm.create_model("resnet18")
    report = load_weights(model, tmp_path / "resnet18.pth")
    assert not report.fresh_head
    assert report.fresh_statistics == 0
    assert str(report).endswith("resnet18.pth: loaded whole")
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), source.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    "save",
    [
        lambda model: {"model_state_dict": model.state_dict(), "epoch": 3, "optimizer_state_dict": {}},
        lambda model: {"model": model.state_dict(), "step": 3},
        lambda model: nn.DataParallel(model).state_dict(),
        lambda model: {f"_orig_mod.{key}": value for key, value in model.state_dict().items()},
        lambda model: {f"module._orig_mod.{key}": value for key, value in model.state_dict().items()},
        lambda model: torch.optim.swa_utils.AveragedModel(model).state_dict(),
        lambda model: NormalizedInput(model, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)).state_dict(),
    ],
    ids=["tutorial", "model", "parallel", "compiled", "parallel and compiled", "averaged", "of a run"],
)
def test_weights_load_from_under_what_training_scripts_put_around_them(save, tmp_path):
    source = trained_resnet18()
    torch.save(save(source), tmp_path / "resnet18.pth")
    model = asrnorm.create_model("resnet18")
    assert str(load_weights(model, tmp_path / "resnet18.pth")).endswith("loaded whole")
    assert torch.equal(model.layer4[1].conv2.weight, source.layer4[1].conv2.weight)


def test_a_network_whose_own_names_begin_like_a_wrappers_keeps_them():
    state = {"module.weight": torch.ones(1), "module.bias": torch.ones(1)}
    assert unwrap_state(state, state.keys()) == state


def test_a_classifier_for_other_classes_stays_fresh_and_is_reported(tmp_path):
    torch.save(trained_resnet18().state_dict(), tmp_path / "resnet18.pth")
    model = asrnorm.create_model("resnet18", num_classes=7)
    fc = model.fc.weight.clone()
    report = load_weights(model, tmp_path / "resnet18.pth")
    assert report.fresh_head
    assert "the classifier is new" in str(report)
    assert torch.equal(model.fc.weight, fc)


def test_a_half_precision_backbone_without_statistics_loads_widened(tmp_path):
    source = trained_resnet18()
    save_file(backbone(source), tmp_path / "backbone.safetensors")
    model = asrnorm.create_model("resnet18", num_classes=7)
    report = load_weights(model, tmp_path / "backbone.safetensors")
    assert report.fresh_head
    assert report.fresh_statistics == 20
    assert model.conv1.weight.dtype == torch.float32
    assert torch.equal(model.conv1.weight, source.conv1.weight.half().float())
    assert torch.equal(model.bn1.running_mean, torch.zeros(64))


def test_create_model_loads_and_converts(tmp_path):
    source = trained_resnet18()
    torch.save({"state_dict": source.state_dict()}, tmp_path / "resnet18.pth")
    model = asrnorm.create_model("resnet18", norm="asr", num_classes=7, weights=tmp_path / "resnet18.pth")
    assert isinstance(model.bn1, ASRNorm2d)
    assert model.bn1.gated_rescale
    assert torch.equal(model.bn1.gamma_bias, source.bn1.weight)
    assert len(asrnorm.conversion_summary(model).converted) == 10
    everywhere = asrnorm.create_model("resnet18", norm="in", layers="all", weights=tmp_path / "resnet18.pth")
    assert len(asrnorm.conversion_summary(everywhere).converted) == 20


def test_the_model_is_untouched_by_a_file_for_another_network(tmp_path):
    torch.save(asrnorm.create_model("wrn_16_4").state_dict(), tmp_path / "wrn.pth")
    model = asrnorm.create_model("resnet18")
    before = model.conv1.weight.clone()
    with pytest.raises(InputError):
        load_weights(model, tmp_path / "wrn.pth")
    assert torch.equal(model.conv1.weight, before)


def test_weights_of_a_batch_norm_network_are_not_forced_into_another_norm(tmp_path):
    torch.save(trained_resnet18().state_dict(), tmp_path / "resnet18.pth")
    with pytest.raises(InputError, match="load into a model built with norm='bn', then convert it"):
        load_weights(asrnorm.create_model("resnet18", norm="asr"), tmp_path / "resnet18.pth")


class _Hostile:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_a_hostile_pickle_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"conv1.weight": _Hostile()}, "hostile.pth")
    Path("plain.pth").write_bytes(pickle.dumps(_Hostile(), protocol=2))
    for name in ("hostile.pth", "plain.pth"):
        with pytest.raises(InputError, match=r"it is not loaded$"):
            load_weights(asrnorm.create_model("resnet18"), name)
    assert not Path("pwned").exists()


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_truncated_files_are_refused_in_one_line(tmp_path, suffix, keep):
    path = tmp_path / f"weights.{suffix}"
    state = backbone(trained_resnet18())
    torch.save(state, path) if suffix == "pth" else save_file(state, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError) as caught:
        load_weights(asrnorm.create_model("resnet18"), path)
    assert "\n" not in str(caught.value)


def test_nothing_advises_to_load_a_file_unsafely(tmp_path, recwarn):
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "script.pth")
    (tmp_path / "protocol.pth").write_bytes(b"\x80\x2cnothing")
    recwarn.clear()  # of what torch says of TorchScript
    for name in ("script.pth", "protocol.pth"):
        with pytest.raises(InputError, match=r"it is not loaded$"):
            load_weights(asrnorm.create_model("resnet18"), tmp_path / name)
    assert not recwarn.list


@pytest.mark.parametrize("content", [b"\x80\x02u.", b"\x80\x02h\x05.", b"\x80\x02]K\x01s."], ids=repr)
def test_a_broken_pickle_is_one_line_whatever_the_reader_raises(tmp_path, content):
    (tmp_path / "broken.pth").write_bytes(content)
    with pytest.raises(InputError):
        load_weights(asrnorm.create_model("resnet18"), tmp_path / "broken.pth")


def test_a_missing_file_and_a_file_of_something_else(tmp_path):
    with pytest.raises(InputError):
        load_weights(asrnorm.create_model("resnet18"), tmp_path / "absent.pth")
    torch.save([1, 2, 3], tmp_path / "list.pth")
    with pytest.raises(InputError):
        load_weights(asrnorm.create_model("resnet18"), tmp_path / "list.pth")


@pytest.mark.data
def test_the_published_backbone_loads():
    folder = os.environ.get("ASRNORM_DATA")
    path = Path(folder or ".") / "weights" / "resnet18_imagenet_backbone_fp16.safetensors"
    if not folder or not path.exists():
        pytest.skip("no ImageNet backbone under ASRNORM_DATA/weights")
    model = asrnorm.create_model("resnet18", num_classes=7)
    report = load_weights(model, path)
    assert (report.fresh_head, report.fresh_statistics) == (True, 20)
    assert model.bn1.weight.std() > 0.05


def test_weights_of_a_failed_training_are_refused_by_name(tmp_path):
    state = trained_resnet18().state_dict()
    state["layer1.0.conv1.weight"][0, 0, 0, 0] = float("nan")
    torch.save(state, tmp_path / "resnet18.pth")
    with pytest.raises(InputError, match=r"layer1\.0\.conv1\.weight"):
        asrnorm.create_model("resnet18", weights=tmp_path / "resnet18.pth")


def test_a_flipped_bit_anywhere_in_packed_weights_is_noticed(tmp_path):
    state = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "c": torch.rand(5).to(torch.bfloat16)}
    path = tmp_path / "model.safetensors"
    whole = pack_state(state)
    path.write_bytes(whole)
    for found in (read_state(path), load_file(path)):
        assert all(torch.equal(found[name], value) for name, value in state.items())
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        path.write_bytes(bytes(flipped))
        try:
            found = read_state(path)
        except InputError:
            continue
        # What is left are the spaces and the name of the checksum, which say nothing of the weights.
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], value) for name, value in state.items()), place


def test_files_of_others_have_no_checksum_and_are_taken_as_they_are(tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "plain.safetensors")
    save_file({"x": torch.ones(2)}, tmp_path / "told.safetensors", metadata={"format": "pt"})
    for name in ("plain", "told"):
        assert read_state(tmp_path / f"{name}.safetensors")["x"].tolist() == [1, 1]


def test_weights_that_lie_otherwise_are_packed_as_they_read():
    wide = torch.rand(4, 6)
    assert pack_state({"x": wide.t()}) == pack_state({"x": wide.t().contiguous()})


def test_a_header_of_too_many_names_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "many.safetensors"
    names = b",".join(b'"k%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number for number in range(180_000))
    header = b"{" + names + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match="header of"):
        read_state(path)
