"""The contract of every norm: shapes, dtypes, gradients, modes, state, options, errors, compile and export."""

import copy
import inspect
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import NORMS, create_norm
from helpers.norm_family import ALL, NEEDS_BATCH, NEEDS_SPATIAL, PER_SAMPLE, randomized

every_norm = pytest.mark.parametrize("name", ALL)
every_per_sample_norm = pytest.mark.parametrize("name", PER_SAMPLE)


def forward_backward(layer, x):
    """Output, gradient of the input and of the parameters under a random linear loss."""
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    (y.float() * weights).sum().backward()
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    return y, x.grad, gradients


def assert_all_finite(y, dx, gradients):
    assert torch.isfinite(y).all()
    assert torch.isfinite(dx).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@every_norm
def test_the_signature_is_the_contract(name):
    parameters = list(inspect.signature(NORMS[name]).parameters.values())
    assert parameters[0].name == "num_features"
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters[1:])
    assert {"device", "dtype"} <= {p.name for p in parameters}


@every_norm
@pytest.mark.parametrize("shape", [(3, 8), (3, 8, 5), (3, 8, 5, 4), (3, 8, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_any_rank_works_or_says_why_not(name, shape, dtype):
    layer = randomized(name, 8, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    x = torch.randn(shape).to(dtype)
    if len(shape) == 2 and name in (*NEEDS_SPATIAL, "gn"):
        with pytest.raises(InputError, match="one value per"):
            layer(x)
        return
    y = layer(x)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert torch.isfinite(y).all()


@every_norm
@pytest.mark.parametrize("num_features", [1, 3, 8, 17, 24])
def test_small_and_odd_channel_counts_train(name, num_features):
    assert_all_finite(*forward_backward(randomized(name, num_features), torch.randn(4, num_features, 5, 3)))


@every_norm
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_an_empty_batch_gives_an_empty_batch_and_leaves_the_statistics_alone(name, mode):
    layer = randomized(name, 8).train(mode)
    before = {key: value.clone() for key, value in layer.named_buffers()}
    y, dx, _ = forward_backward(layer, torch.zeros(0, 8, 4, 4))
    assert y.shape == dx.shape == (0, 8, 4, 4)
    assert all(torch.equal(value, before[key]) for key, value in layer.named_buffers())


@every_norm
def test_a_single_pixel_works_or_is_refused_in_one_line(name):
    layer = randomized(name, 8)
    x = torch.randn(1, 8, 1, 1)
    if name in (*NEEDS_SPATIAL, *NEEDS_BATCH, "gn"):
        with pytest.raises(InputError, match=r"\w+\(8\): one value per .* \(1, 8, 1, 1\)") as caught:
            layer(x)
        assert "\n" not in str(caught.value)
    else:
        assert_all_finite(*forward_backward(layer, x))


@every_norm
def test_a_batch_of_one_works(name):
    assert_all_finite(*forward_backward(randomized(name, 8), torch.randn(1, 8, 4, 4)))


@every_norm
@pytest.mark.parametrize("value", [0.0, 1.0, -3e3])
def test_constant_channels_keep_values_and_gradients_finite(name, value):
    x = torch.randn(4, 8, 6, 6)
    x[:, ::2] = value
    assert_all_finite(*forward_backward(randomized(name, 8), x))
    assert_all_finite(*forward_backward(randomized(name, 8), torch.full((4, 8, 6, 6), value)))


@every_norm
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float16, 6e4),
        (torch.float16, 1e-7),
        (torch.bfloat16, 1e15),
        (torch.bfloat16, 1e-15),
        (torch.float32, 1e15),
        (torch.float32, 1e-15),
    ],
    ids=str,
)
def test_extreme_scales_keep_values_and_gradients_finite(name, dtype, scale):
    x = ((2 * torch.rand(4, 8, 7, 7) - 1) * scale).to(dtype)
    assert_all_finite(*forward_backward(randomized(name, 8), x))


@pytest.mark.parametrize("name", ["asr", "as", "ar", "in", "bn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1e20, 1e30])
def test_a_variance_that_overflows_keeps_values_and_gradients_finite(name, dtype, scale):
    x = ((2 * torch.rand(4, 8, 7, 7) - 1) * scale).to(dtype)
    assert_all_finite(*forward_backward(randomized(name, 8), x))


@every_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_module_in_half_precision_works(name, dtype):
    layer = randomized(name, 8).to(dtype)
    y, dx, gradients = forward_backward(layer, torch.randn(4, 8, 5, 5).to(dtype))
    assert y.dtype == dx.dtype == dtype
    assert_all_finite(y, dx, gradients)


@every_per_sample_norm
def test_a_sample_does_not_depend_on_its_neighbours(name):
    layer = randomized(name, 16)
    x = torch.randn(6, 16, 7, 5) * torch.logspace(-2, 2, 6).reshape(6, 1, 1, 1)
    together = layer(x)
    for index in range(6):
        torch.testing.assert_close(layer(x[index : index + 1])[0], together[index], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer(x.flip(0)).flip(0), together, rtol=1e-5, atol=1e-5)


@every_per_sample_norm
def test_training_and_evaluation_agree(name):
    layer = randomized(name, 16)
    x = torch.randn(4, 16, 7, 5)
    assert torch.equal(layer.train()(x), layer.eval()(x))


@pytest.mark.parametrize("name", sorted(set(ALL) - set(PER_SAMPLE) - {"bn_test"}))
def test_evaluation_of_batch_norms_does_not_depend_on_the_batch(name):
    layer = randomized(name, 16)
    x = torch.randn(6, 16, 7, 5)
    layer(x)
    layer.eval()
    torch.testing.assert_close(layer(x[:1]), layer(x)[:1], rtol=1e-5, atol=1e-5)


@every_norm
def test_channels_last_stays_channels_last(name):
    layer = randomized(name, 16)
    x = torch.randn(2, 16, 7, 5)
    y = layer(x.contiguous(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, copy.deepcopy(layer)(x), rtol=1e-5, atol=1e-5)


@every_norm
def test_strided_input_gives_the_result_of_a_contiguous_copy(name):
    layer = randomized(name, 8).eval()
    wide = torch.randn(4, 16, 10, 9)
    x = wide[:, ::2, 1:-1:2, :].transpose(2, 3)
    torch.testing.assert_close(layer(x), layer(x.contiguous()), rtol=1e-5, atol=1e-5)


@every_norm
def test_autocast_keeps_statistics_in_float32(name):
    layer = randomized(name, 16)
    x = 100 + torch.randn(4, 16, 9, 9)  # bfloat16 statistics would lose the variance beside this mean
    expected = copy.deepcopy(layer)(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        assert layer(x.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0, atol=0)


@every_norm
def test_state_dict_deepcopy_and_pickle_keep_the_function(name):
    layer = randomized(name, 16)
    layer(torch.randn(4, 16, 5, 5))
    layer.eval()
    x = torch.randn(4, 16, 5, 5)
    fresh = create_norm(name, 16).eval()
    fresh.load_state_dict(layer.state_dict())
    for other in (fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))


OTHER_VALUES = {"rescale_features": 5, "statistics": "layer", "activation": "relu"}


def other_value(option):
    """A value that the option allows and that is not its default."""
    if option.name in OTHER_VALUES:
        return OTHER_VALUES[option.name]
    return not option.default if isinstance(option.default, bool) else 2 * option.default


@every_norm
def test_every_option_that_differs_from_its_default_is_shown_and_no_other(name):
    assert create_norm(name, 64).extra_repr() == "64"
    options = {key: option for key, option in NORMS.options(name).items() if key not in ("device", "dtype")}
    for key, option in options.items():
        value = other_value(option)
        layer = create_norm(name, 64, **{key: value})
        for same in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert same.extra_repr() == f"64, {key}={value!r}"


@every_norm
@pytest.mark.parametrize(
    ("x", "error", "said"),
    [
        (torch.randn(2, 6, 4, 4), InputError, r"8 channels .* got 6 in shape \(2, 6, 4, 4\)$"),
        (torch.randn(8), InputError, r"\(8,\)$"),
        (torch.randn(8, 4, 4), InputError, r"x\.unsqueeze\(0\)$"),
        (torch.randn(2, 8, 0, 4), InputError, r"\(2, 8, 0, 4\)"),
        (torch.zeros(2, 8, 4, 4, dtype=torch.uint8), InputTypeError, r"torch\.uint8.* x\.float\(\)$"),
        ([1.0], InputTypeError, "list$"),
    ],
    ids=["channels", "rank", "unbatched", "empty", "dtype", "list"],
)
def test_the_error_for_wrong_input_names_the_layer_and_what_is_wrong(name, x, error, said):
    layer = create_norm(name, 8)
    with pytest.raises(error, match=rf"^{type(layer).__name__}\(8\): .*{said}"):
        layer(x)


@every_norm
def test_the_device_and_dtype_arguments_reach_every_tensor(name):
    layer = create_norm(name, 8, device="meta", dtype=torch.float64)
    tensors = [*layer.parameters(), *(b for b in layer.buffers() if b.is_floating_point())]
    assert all(t.is_meta and t.dtype == torch.float64 for t in tensors)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"none"}))
def test_every_parameter_receives_a_gradient(name):
    layer = randomized(name, 64)  # fewer channels leave the rescaling networks one hidden unit, which may be dead
    _, _, gradients = forward_backward(layer, torch.randn(8, 64, 5, 5))
    assert len(gradients) == len(list(layer.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


@every_norm
def test_two_forwards_before_one_backward(name):
    layer = randomized(name, 8)
    x = torch.randn(4, 8, 4, 4, requires_grad=True)
    (layer(x) + layer(2 * x)).sum().backward()
    assert torch.isfinite(x.grad).all()


@every_norm
@given(n=st.integers(1, 5), h=st.integers(1, 9), w=st.integers(2, 9), c=st.integers(1, 20), seed=st.integers(0, 99))
def test_any_shape_gives_finite_values_or_a_named_refusal(name, n, h, w, c, seed):
    x = torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(seed))
    assert_all_finite(*forward_backward(randomized(name, c), x))


def loss_and_gradients(layer, x):
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    y.square().mean().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch itself
@pytest.mark.parametrize("name", sorted(set(ALL) - {"none"}))
def test_compiled_training_step_agrees_with_eager(name):
    torch._dynamo.reset()
    layer = randomized(name, 16)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(4, 16, 6, 6)
    for got, expected in zip(loss_and_gradients(compiled, x), loss_and_gradients(eager, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for got, expected in zip(layer.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch itself
def test_compiled_asr_under_autocast_is_one_graph():
    torch._dynamo.reset()
    layer = randomized("asr", 16)
    x = torch.randn(4, 16, 6, 6).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x), rtol=2e-2, atol=2e-2)


DYNAMIC = {0: torch.export.Dim("n"), 2: torch.export.Dim("h"), 3: torch.export.Dim("w")}
OTHER_SHAPES = [(2, 16, 6, 7), (5, 16, 9, 4)]


@pytest.mark.parametrize("name", ALL)
def test_exported_program_agrees_at_other_batches_and_sizes(name):
    layer = randomized(name, 16).eval()
    program = torch.export.export(layer, (torch.randn(3, 16, 8, 5),), dynamic_shapes=({**DYNAMIC},))
    for shape in OTHER_SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"none"}))
def test_onnxruntime_agrees_at_other_batches_and_sizes(name):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'asrnorm[onnx]'")
    pytest.importorskip("onnxscript", reason="pip install 'asrnorm[onnx]'")
    layer = randomized(name, 16).eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program = torch.onnx.export(
            layer, (torch.randn(3, 16, 8, 5),), dynamic_shapes=({**DYNAMIC},), dynamo=True, verbose=False
        )
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    for shape in OTHER_SHAPES:
        x = torch.randn(shape)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=1e-5, atol=1e-5)
