"""From a config to the things it names: checked first, then made, on the device and in the precision of the run.

What is done to a pretrained network on source images before the first step.

What is done to a trained network on source images before it is scored.
"""

import logging
from contextlib import suppress
from typing import Any

import torch

from asrnorm.conversion import calibrate, confine, convert, reestimate
from asrnorm.conversion.select import BATCH_NORMS, Layers
from asrnorm.core.config import RunConfig
from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import AsrnormError, InputError, MissingDependencyError
from asrnorm.core.precision import weight_dtype
from asrnorm.data import SUITES, Suite, create_suite
from asrnorm.data.download.verify import find_weights
from asrnorm.data.pool import Pool
from asrnorm.methods import METHODS, Method, keyed_generator
from asrnorm.models import MODELS, Classifier, create_model, replaces_norms
from asrnorm.models.base import PARTS, NormalizedInput
from asrnorm.norms import NORMS, ARNorm2d, ASRNorm2d
from asrnorm.training.batches import Batches
from asrnorm.training.distributed import from_first

_MADE_HERE = frozenset({"device", "dtype", "norm_layer"})  # options of constructors that a run fills in itself
_NOTHING_TO_CONFINE = "confine is for norms that learn their standardization, asr and as, not {!r}"


def check_names(config: RunConfig) -> None:
    """Refuse names and options that no registry knows.

    Raises:
        UnknownNameError: with the nearest name that is known.
        InputError: text where a number is wanted, and the like.
    """
    SUITES.check(config.suite.name, config.suite.args)
    MODELS.check(config.model.name, config.model.args)
    NORMS.check(config.norm.name, config.norm.args)
    METHODS.check(config.method.name, config.method.args)
    for field, choice in (("model", config.model), ("norm", config.norm)):
        for option in _MADE_HERE.intersection(choice.args):
            raise InputError(f"{field}.{option} follows from device, precision and norm: leave it out")


def check_config(config: RunConfig) -> None:
    """Refuse what no run is started with, before any data is touched; finished ones of earlier versions may have it.

    Raises:
        UnknownNameError: with the nearest name that is known.
        InputError: values that do not go together.
    """
    check_names(config)
    if config.seed < 0:
        raise InputError(f"seed must be at least 0, not {config.seed}")
    if config.calibrate and (config.weights is None or config.norm.name == "bn"):
        raise InputError("calibrate needs a pretrained network whose norms are converted: weights, and a norm but bn")
    if config.confine and config.norm.name in NORMS and not _may_learn_standardization(config):
        raise InputError(_NOTHING_TO_CONFINE.format(config.norm.name))
    if config.confine and config.compile:
        raise InputError(
            "confine cannot look into compiled layers: leave out compile, or use evaluate --set confine=N afterwards"
        )
    if config.optim.norm_warmup_steps and config.weights is None:
        raise InputError("optim.norm_warmup_steps lets a pretrained network wait: it needs weights")
    if config.layers != "auto" and config.weights is None:
        raise InputError(
            f"layers={config.layers} chooses norms of a pretrained network: it needs weights; without them every norm "
            f"is {config.norm.name!r}"
        )
    if config.selection != "last" and not config.evaluate_every:
        raise InputError(
            f"selection={config.selection} chooses among evaluations, and evaluate_every=0 makes none: give it a "
            "number of steps"
        )
    method = METHODS[config.method.name](**config.method.args)  # checks the values of its options
    if config.compile and method.differentiates_twice:
        raise InputError(f"{config.method.name} differentiates twice, which torch.compile cannot: leave out compile")


def _may_learn_standardization(config: RunConfig) -> bool:
    """Tell by the norm's class; what a function makes is seen when the model is built."""
    factory = NORMS[config.norm.name]
    if not isinstance(factory, type):
        return True
    learns = issubclass(factory, ASRNorm2d) and not issubclass(factory, ARNorm2d)
    return learns and config.norm.args.get("standardize", True) is not False


def rehearse(config: RunConfig) -> None:
    """Make the suite and the model of a run on paper, so that values which they refuse show before it is started.

    No file of data is read, so that a suite's classes may be unknown: the model is made with two.

    Raises:
        InputError: what a constructor refuses.
    """
    create_suite(config.suite.name, **config.suite.args)
    with suppress(MissingDependencyError):
        try:
            with torch.device("meta"):
                _rehearse_model(config)
        except AsrnormError:
            raise
        except (RuntimeError, TypeError, NotImplementedError):
            # A constructor that reads values, which tensors on paper do not have.
            with torch.random.fork_rng(devices=[]):
                _rehearse_model(config)


def _rehearse_model(config: RunConfig) -> None:
    options = _model_options(config, 2)
    if config.weights is None:
        create_model(config.model.name, norm=config.norm.name, norm_options=config.norm.args, **options)
        return
    model = create_model(config.model.name, **options)
    # What `auto` picks depends on the weights, which are not read here.
    if config.layers != "auto" and replaces_norms(model, config.norm.name, config.norm.args):
        convert(model, config.norm.name, layers=config.layers, **config.norm.args)


def build_model(config: RunConfig, suite: Suite, num_classes: int, device: torch.device) -> Classifier:
    """Return the model of a run at its start: initialized from the seed alone, or from the weights it names."""
    path = None if config.weights is None else find_weights(config.weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_generator(config.seed, "model").initial_seed())
        model = create_model(
            config.model.name,
            norm=config.norm.name,
            norm_options=config.norm.args,
            weights=path,
            layers=config.layers,
            **_model_options(config, num_classes),
        )
    if model.num_classes != num_classes and "num_classes" not in config.model.args:
        raise InputError(
            f"model {config.model.name!r} has {model.num_classes} outputs, the suite {num_classes} classes; let it "
            "take num_classes as a keyword-only argument"
        )
    if model.num_classes < num_classes:
        raise InputError(
            f"model.num_classes={model.num_classes}: the suite has {num_classes} classes; leave it out, or give more"
        )
    if config.confine and not any(isinstance(layer, ASRNorm2d) and layer.standardize for layer in model.modules()):
        raise InputError(_NOTHING_TO_CONFINE.format(config.norm.name))
    return _place(model, config, suite, device)


def build_like(
    config: RunConfig, suite: Suite, num_classes: int, device: torch.device, state: dict[str, torch.Tensor]
) -> Classifier:
    """Return the model of a run with the given weights; the file it was started from is not needed."""
    options = _model_options(config, num_classes)
    if config.weights is None:
        model = create_model(config.model.name, norm=config.norm.name, norm_options=config.norm.args, **options)
    else:
        model = create_model(config.model.name, **options)
    if config.weights is not None and replaces_norms(model, config.norm.name, config.norm.args):
        norm_options = dict(config.norm.args)
        if "gated_rescale" in NORMS.options(config.norm.name):
            # Decided at the start by whether the norms it replaced were trained, which these are not.
            norm_options.setdefault("gated_rescale", any(name.endswith("lambda_beta") for name in state))
        convert(model, config.norm.name, layers=_converted_layers(config, state), **norm_options)
    placed = _place(model, config, suite, device)
    placed.load_state_dict(state)
    return placed


def _converted_layers(config: RunConfig, state: dict[str, torch.Tensor]) -> Layers:
    """Which layers a run had converted; `auto` chose among trained norms, which those of a new model are not."""
    if config.layers != "auto" or config.norm.name in BATCH_NORMS:
        return config.layers

    def is_converted(name: str, norm: torch.nn.Module) -> bool:
        places = (f"{name}.", f"backbone.{name}.")  # the second in a model that normalizes its input
        found = {key.removeprefix(place) for place in places for key in state if key.startswith(place)}
        return found != norm.state_dict().keys()

    return is_converted


def build_method(config: RunConfig, device: torch.device, world: World) -> Method:
    """Return the method of a run, its own networks on the device."""
    method = METHODS[config.method.name](**config.method.args)
    method.seed, method.world = config.seed, world
    for module in method.modules().values():
        module.to(device, run_dtype(config))
    return method


def run_dtype(config: RunConfig) -> torch.dtype:
    """Return the dtype of a run's weights and images; `bfloat16` is autocast over float32."""
    return weight_dtype(config.precision)


def compile_parts(model: Classifier) -> None:
    """Compile each part of a model that methods call; names and state stay as they are."""
    for part in PARTS:
        setattr(model, part, torch.compile(getattr(model, part)))


def _model_options(config: RunConfig, num_classes: int) -> dict[str, Any]:
    takes_classes = "num_classes" in MODELS.options(config.model.name)
    return {**({"num_classes": num_classes} if takes_classes else {}), **config.model.args}


def _place(model: Classifier, config: RunConfig, suite: Suite, device: torch.device) -> Classifier:
    if suite.mean is not None and suite.std is not None:
        model = NormalizedInput(model, suite.mean, suite.std)
    model.to(device, run_dtype(config))
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


logger = logging.getLogger("asrnorm")


def prepare_model(model: Classifier, config: RunConfig, pool: Pool, world: World = ALONE) -> None:
    """Calibrate converted norms, then estimate running statistics anew, as far as the config asks for it.

    The batches are the first of a shuffled training run, augmented as in training; every process takes them whole, and
    all of them go on with what the first has found.

    Args:
        model: at its start, on the device of the pool; changed in place.
        config: of the run.
        pool: the source images.
        world: the processes.

    Raises:
        ConversionError: the model has nothing to calibrate, or no running statistics.
    """
    if not (config.calibrate or config.reestimate):
        return
    batches = Batches(
        pool,
        batch_size=config.batch_size,
        seed=config.seed,
        augment=config.augment,
        dtype=run_dtype(config),
    )
    if config.calibrate:
        report = calibrate(model, (batches.fetch(step).images for step in range(config.calibrate)))
        logger.info("on %d batches: %s", config.calibrate, report)
    if config.reestimate:
        # After the calibration, which changes what the norms that keep statistics get to see.
        count = reestimate(model, (batches.fetch(step).images for step in range(config.reestimate)))
        logger.info("running statistics of %d norms estimated on %d batches", count, config.reestimate)
    if world.size > 1:
        own: dict[str, torch.Tensor] = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(from_first(own if world.rank == 0 else {}, world))


def confine_to_source(model: Classifier, suite: Suite, config: RunConfig, world: World = ALONE) -> None:
    """Confine the learned means of a model to their range on training images, which are not augmented for it.

    Every process takes all of the images, and all go on with what the first has found.

    Args:
        model: trained, on its device; changed in place.
        suite: whose training images, `config.confine` of them at most, spread evenly over the set.
        config: of the run.
        world: the processes.

    Raises:
        ConversionError: the model learns no standardization.
    """
    from asrnorm.evaluation.inference import Inference
    from asrnorm.evaluation.score import evaluation_size, iterate_batches, subsample

    inference = Inference.of(model, precision=config.precision, size=evaluation_size(suite, config.augment))
    images = subsample(suite.train, config.confine)
    batches = (inference.to_input(batch) for _, batch, _ in iterate_batches(images, config.evaluate_batch))
    with inference.autocast():
        count = confine(model, batches)
    logger.info("learned means of %d layers confined to their range on %d source images", count, len(images))
    if world.size > 1:
        own: dict[str, torch.Tensor] = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(from_first(own if world.rank == 0 else {}, world))
