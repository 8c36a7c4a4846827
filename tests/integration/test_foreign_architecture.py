"""Networks of torchvision and timm: converted, run, trained a step, and reverted to the same outputs."""

import warnings

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.conversion.replace import NormAct
from asrnorm.norms import NormLayer

TORCHVISION = {
    "resnet18": {},
    "resnet50": {},
    "resnext50_32x4d": {},
    "wide_resnet50_2": {},
    "densenet121": {},
    "googlenet": {"init_weights": False, "aux_logits": False},
    "inception_v3": {"init_weights": False, "aux_logits": False},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mnasnet0_5": {},
    "shufflenet_v2_x0_5": {},
    "efficientnet_b0": {},
    "efficientnet_v2_s": {},
    "regnet_y_400mf": {},
    "vgg11_bn": {},
}
TIMM = (
    "resnet18",
    "resnet26t",
    "resnet50d",
    "seresnet50",
    "resnetv2_50",
    "efficientnet_b0",
    "tf_efficientnet_b0",
    "mobilenetv3_small_100",
    "inception_v3",
    "inception_v4",
    "inception_resnet_v2",
    "xception41",
    "densenet121",
    "regnety_004",
    "dla34",
    "hrnet_w18_small",
    "dpn68",
    "ese_vovnet19b_dw",
    "repvgg_a0",
    "ghostnet_100",
    "cspresnet50",
    "res2net50_26w_4s",
    "mixnet_s",
)


def with_trained_norms(model):
    """Norms as after training: no two channels alike."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.weight.data.copy_(0.8 + 0.4 * torch.rand(module.weight.shape, generator=generator))
            module.bias.data.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
            module.running_var.copy_(0.8 + 0.4 * torch.rand(module.running_var.shape, generator=generator))
    return model.eval()


def check(model, size, **choice):
    model = with_trained_norms(model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(2, 3, size, size, device=device)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    model.to(device)
    torch.backends.cudnn.deterministic = True
    with torch.no_grad():
        before = model(x)
        asrnorm.convert(model, "asr", **choice)
        summary = asrnorm.conversion_summary(model)
        assert torch.isfinite(model(x)).all()
        torch.testing.assert_close(asrnorm.revert(model)(x), before, rtol=0, atol=0)
    assert len(summary.converted) + len(summary.left) >= len(norms) > 0
    asrnorm.convert(model, "asr", **choice)
    assert all(m.gated_rescale for m in model.modules() if isinstance(m, NormLayer))
    model.train()(x).float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    asrnorm.revert(model)
    assert [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] == norms
    assert not any(isinstance(m, NormLayer | NormAct) for m in model.modules())


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name):
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models.get_model(name, weights=None, **TORCHVISION[name])
    check(model, 299 if "inception" in name else 128, layers="all")


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    check(timm.create_model(name, pretrained=False), 299 if "ception" in name else 128, layers="all")


def test_video_network_of_batch_norm_3d():
    models = pytest.importorskip("torchvision.models.video", reason="torchvision is not installed")
    model = with_trained_norms(models.r3d_18(weights=None))
    x = torch.randn(1, 3, 4, 32, 32)
    with torch.no_grad():
        before = model(x)
        asrnorm.convert(model, "asr")
        assert torch.isfinite(model(x)).all()
        torch.testing.assert_close(asrnorm.revert(model)(x), before, rtol=0, atol=0)


def test_detection_backbone_of_frozen_batch_norm():
    detection = pytest.importorskip(
        "torchvision.models.detection.backbone_utils", reason="torchvision is not installed"
    )
    model = detection.resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=0).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before = model(x)["0"]
        asrnorm.convert(model, "asr", layers="all")
        assert "FrozenBatchNorm2d ->" in str(asrnorm.conversion_summary(model))
        assert torch.isfinite(model(x)["0"]).all()
        torch.testing.assert_close(asrnorm.revert(model)(x)["0"], before, rtol=0, atol=0)


def test_convnext_of_layer_norm_2d_on_request():
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    model = models.convnext_tiny(weights=None).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before = model(x)
        asrnorm.convert(model, "asr", kinds=("layer2d",))
        assert torch.isfinite(model(x)).all()
        torch.testing.assert_close(asrnorm.revert(model)(x), before, rtol=0, atol=0)


def test_our_resnets_hold_torchvisions_keys_and_agree_with_it():
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    for name in ("resnet18", "resnet50"):
        theirs = with_trained_norms(models.get_model(name, weights=None))
        ours = asrnorm.create_model(name).eval()
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(2, 3, 96, 96)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
