"""From a config to what it names: checked first, then built on the device and in the precision of the run."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from asrnorm.conversion import BLOCKS, calibrate, confine, convert, insert, reestimate
from asrnorm.conversion.select import BATCH_NORMS, Layers
from asrnorm.core.config import RunConfig
from asrnorm.core.distributed import ALONE, World, sum_over_processes
from asrnorm.core.errors import AsrnormError, InputError, MissingDependencyError, WrongCallError
from asrnorm.core.precision import weight_dtype
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.data import SUITES, Suite, create_suite
from asrnorm.data.augment import create_augmentation
from asrnorm.data.download.verify import find_weights
from asrnorm.data.pool import Pool
from asrnorm.methods import METHODS, Method, keyed_generator
from asrnorm.models import MODELS, Classifier, create_model, replaces_norms
from asrnorm.models.base import PARTS, DomainAverage, NormalizedInput, count_domains
from asrnorm.norms import NORMS, ARNorm2d, ASRNorm2d
from asrnorm.norms.base import NormLayer
from asrnorm.training.average import AVERAGES
from asrnorm.training.batches import Batches

T = TypeVar("T")

logger = logging.getLogger("asrnorm")

_DEVICES = ("cpu", "cuda", "mps")
_SET_BY_RUN = frozenset({"device", "dtype", "norm_layer"})  # options of constructors that a run fills in itself
_NOTHING_TO_CONFINE = "confine is for norms that learn their standardization, asr and as, not {!r}"


def check_names(config: RunConfig) -> None:
    """Raise if a registry does not know a name or an option, or if an option has the wrong type."""
    SUITES.check(config.suite.name, config.suite.args)
    MODELS.check(config.model.name, config.model.args)
    NORMS.check(config.norm.name, config.norm.args)
    METHODS.check(config.method.name, config.method.args)
    create_augmentation(config.augment)
    if config.average.name != "none":
        AVERAGES.check(config.average.name, config.average.args)
    for name, options in _list_blocks(config):
        BLOCKS.check(name, {option: value for option, value in options.items() if option != "layers"})
    for field, choice in (("model", config.model), ("norm", config.norm)):
        for option in _SET_BY_RUN.intersection(choice.args):
            raise InputError(f"{field}.{option} follows from device, precision and norm: leave it out")


def check_config(config: RunConfig) -> None:
    """Raise if a run cannot be started with a config, before any data is read; loading a finished run allows more."""
    check_names(config)
    if config.seed < 0:
        raise InputError(f"seed must be at least 0, not {config.seed}")
    if config.calibrate and (config.weights is None or config.norm.name == "bn"):
        raise InputError(
            "calibrate needs a pretrained network with converted norms: set weights, and another norm than bn"
        )
    if config.confine and config.norm.name in NORMS and not _may_learn_standardization(config):
        raise InputError(_NOTHING_TO_CONFINE.format(config.norm.name))
    if config.confine and config.compile:
        raise InputError(
            "confine cannot look into compiled layers: leave out compile, or use evaluate --set confine=N afterwards"
        )
    if config.adapt != "none" and config.model.name != "resnet26_ttt":
        raise InputError(f"adapt={config.adapt} needs a network with a rotation branch: set model=resnet26_ttt")
    if config.optim.norm_warmup_steps and config.weights is None:
        raise InputError("optim.norm_warmup_steps freezes a pretrained network at first: it needs weights")
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
    if config.fold != "none" and config.selection in ("source-val", "oracle"):
        raise InputError(f"fold={config.fold} measures shifted-val: leave out selection={config.selection}")
    over = config.method.args.get("over", config.method.name)
    if config.fold == "structure" and (over["name"] if isinstance(over, dict) else over) in ("rda", "rsda", "esda"):
        raise InputError(
            f"method {over!r} trains with changed values, which fold=structure leaves out: use augment=rsda"
        )
    _check_average(config)
    method = METHODS[config.method.name](**config.method.args)  # checks the values of its options
    if config.compile and method.differentiates_twice:
        raise InputError(f"{config.method.name} differentiates twice, which torch.compile cannot: leave out compile")


def _check_average(config: RunConfig) -> None:
    if config.average.name == "none":
        return
    AVERAGES[config.average.name](**config.average.args)  # checks the values of its options
    if config.compile:
        raise InputError("average estimates running statistics, which compiled layers hide: leave out compile")
    if config.average.name == "swad" and not config.evaluate_every:
        raise InputError("average=swad measures the validation loss: set evaluate_every to a number of steps")
    if config.average.name == "swad" and config.selection != "last":
        raise InputError(f"average=swad chooses the steps itself: leave out selection={config.selection}")


def _may_learn_standardization(config: RunConfig) -> bool:
    """Tell by the norm's class; the result of a factory function is checked once the model is built."""
    factory = NORMS[config.norm.name]
    if not isinstance(factory, type):
        return True
    learns = issubclass(factory, ASRNorm2d) and not issubclass(factory, ARNorm2d)
    return learns and config.norm.args.get("standardize", True) is not False


def rehearse(config: RunConfig) -> None:
    """Build the suite and the model of a run without memory, so that bad values show before it is started.

    No data file is read, so the classes of the suite may be unknown: the model is built with two.
    """
    create_suite(config.suite.name, **config.suite.args)
    with suppress(MissingDependencyError):
        try:
            with torch.device("meta"):
                _rehearse_model(config)
        except AsrnormError:
            raise
        except (RuntimeError, TypeError, NotImplementedError):
            # A constructor that reads values, which tensors on the meta device do not have.
            with torch.random.fork_rng(devices=[]):
                _rehearse_model(config)


def _rehearse_model(config: RunConfig) -> None:
    model, is_to_convert = _create_plain(config, 2)
    if is_to_convert and config.layers != "auto":  # that choice depends on the weights, which are not read here
        convert(model, config.norm.name, layers=config.layers, **config.norm.args)


def _create_plain(config: RunConfig, num_classes: int) -> tuple[Classifier, bool]:
    """Return the model of a run without its weights, and whether its norms must still be converted."""
    options = _model_options(config, num_classes)
    if config.weights is None:
        options |= {"norm": config.norm.name, "norm_options": config.norm.args}
    model = create_model(config.model.name, **options)
    return model, config.weights is not None and replaces_norms(model, config.norm.name, config.norm.args)


def choose_device(name: str) -> torch.device:
    """Return the device of this process: `auto` is a GPU if there is one, under `torchrun` the process's own.

    The environment variable `ASRNORM_DEVICE` overrides `auto`.
    """
    setting = "device"
    if name == "auto" and os.environ.get(DEVICE_VARIABLE):
        name, setting = os.environ[DEVICE_VARIABLE], DEVICE_VARIABLE
    elif name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kinds = f"one of {', '.join((('auto',) if setting == 'device' else ()) + _DEVICES)}"
    try:
        device = torch.device(name)
    except RuntimeError:  # torch would list some twenty kinds
        raise WrongCallError(f"{setting} {name!r}: no such device; it must be {kinds}") from None
    if device.type not in _DEVICES:
        raise WrongCallError(f"{setting} {name!r} cannot be used: it must be {kinds}")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                f"{setting} {name!r}: this machine has no CUDA device that torch can use; set {setting}=cpu"
            )
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Yield the processes of this run: those that `torchrun` started (gloo on CPUs, NCCL on GPUs), or this one alone.

    An existing process group is used and left open.
    """
    if distributed.is_available() and distributed.is_initialized():
        yield World(distributed.get_rank(), distributed.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, size = next(distributed.rendezvous("env://"))  # type: ignore[attr-defined]
    # torchrun's store outlives a restart: without a prefix, a process may connect to the address of a killed one.
    prefix = f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    own = distributed.PrefixStore(prefix, store)  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=own, rank=rank, world_size=size)
    try:
        yield World(distributed.get_rank(), distributed.get_world_size())
        distributed.barrier()  # no process closes the group while another still uses it
    finally:
        distributed.destroy_process_group()


def from_first(value: T, world: World) -> T:
    """Return the first process's value on all of them."""
    if world.size == 1:
        return value
    box: list[Any] = [value if world.rank == 0 else None]
    distributed.broadcast_object_list(box, src=0)
    received: T = box[0]
    return received


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
    domains = count_domains(model)
    if domains and domains != len(suite.sources):
        raise InputError(
            f"norm {config.norm.name!r} has {domains} domains, and the run {len(suite.sources)} sources; set "
            f"norm.num_domains={len(suite.sources)}"
        )
    if config.confine and not any(isinstance(layer, ASRNorm2d) and layer.standardize for layer in model.modules()):
        raise InputError(_NOTHING_TO_CONFINE.format(config.norm.name))
    for name, options in _list_blocks(config):
        if config.fold == "none" or getattr(BLOCKS[name], "fold", "none") in ("none", config.fold):
            insert(model, name, **options)
    return _finish_model(model, config, suite, device)


def _list_blocks(config: RunConfig) -> list[tuple[str, dict[str, Any]]]:
    """The name of each block of a run, and its options with the layers."""
    parts = [config.blocks] if isinstance(config.blocks, str) else config.blocks
    named = [{"name": part} if isinstance(part, str) else dict(part) for part in parts]
    return [(options.pop("name"), options) for options in named if options["name"] != "none"]


def build_like(
    config: RunConfig, suite: Suite, num_classes: int, device: torch.device, state: dict[str, Tensor]
) -> Classifier:
    """Return the model of a run with the given weights; the file it started from is not needed."""
    model, is_to_convert = _create_plain(config, num_classes)
    if is_to_convert:
        norm_options = dict(config.norm.args)
        if "gated_rescale" in NORMS.options(config.norm.name):
            # The conversion decided it by whether the old norms were trained, which those of a new model are not.
            norm_options.setdefault("gated_rescale", any(name.endswith("lambda_beta") for name in state))
        convert(model, config.norm.name, layers=_converted_layers(config, state), **norm_options)
    model = _finish_model(model, config, suite, device)
    model.load_state_dict(state)
    return model


def _converted_layers(config: RunConfig, state: dict[str, Tensor]) -> Layers:
    """The layers that a run converted; `auto` chose among trained norms, which those of a new model are not."""
    if config.layers != "auto" or config.norm.name in BATCH_NORMS:
        return config.layers

    def is_converted(name: str, norm: nn.Module) -> bool:
        prefixes = (f"{name}.", f"backbone.{name}.", f"backbone.backbone.{name}.")  # in the wrappers of `_finish_model`
        found = {key.removeprefix(prefix) for prefix in prefixes for key in state if key.startswith(prefix)}
        return found != norm.state_dict().keys()

    return is_converted


def _model_options(config: RunConfig, num_classes: int) -> dict[str, Any]:
    takes_classes = "num_classes" in MODELS.options(config.model.name)
    return {**({"num_classes": num_classes} if takes_classes else {}), **config.model.args}


def _finish_model(model: Classifier, config: RunConfig, suite: Suite, device: torch.device) -> Classifier:
    """Add the normalization of the input and the mean over domains, and move the model to the device."""
    if suite.mean is not None and suite.std is not None:
        model = NormalizedInput(model, suite.mean, suite.std)
    if count_domains(model):
        model = DomainAverage(model)
    model.to(device, weight_dtype(config.precision))
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def build_method(config: RunConfig, device: torch.device, world: World) -> Method:
    """Return the method of a run, its own networks on the device."""
    method = METHODS[config.method.name](**config.method.args)
    method.seed, method.world = config.seed, world
    for module in method.modules().values():
        module.to(device, weight_dtype(config.precision))
    return method


def compile_parts(model: Classifier) -> None:
    """Compile each part of a model that methods call; names and state stay as they are."""
    for part in PARTS:
        setattr(model, part, torch.compile(getattr(model, part)))


def synchronize(model: nn.Module, world: World) -> int:
    """Let the norms of a model that use batch statistics take them over the batch of all processes.

    The layers get a differentiable sum over the processes: forward and backward pass and running statistics are those
    of a single process.
    """
    if world.size == 1:
        return 0
    layers = [module for module in model.modules() if isinstance(module, NormLayer) and hasattr(module, "running_mean")]
    for layer in layers:
        layer.process_sum = sum_over_processes
    known = (NormLayer, nn.SyncBatchNorm)
    foreign = [module for module in model.modules() if isinstance(module, _BatchNorm) and not isinstance(module, known)]
    if foreign and world.rank == 0:
        logger.warning(
            "%d batch norms are not this package's: each process uses the statistics of its own part of the batch, and "
            "those of the first process are saved",
            len(foreign),
        )
    return len(layers)


def prepare_model(model: Classifier, config: RunConfig, pool: Pool, world: World = ALONE) -> None:
    """Calibrate converted norms, then estimate running statistics again, as far as the config asks for it.

    The batches are the first of a shuffled training run, augmented as in training; every process takes them whole, and
    all continue with the result of the first.
    """
    if not (config.calibrate or config.reestimate):
        return
    batches = Batches(
        pool,
        batch_size=config.batch_size,
        seed=config.seed,
        augment=config.augment,
        fold=config.fold,
        dtype=weight_dtype(config.precision),
    )
    if config.calibrate:
        report = calibrate(model, (batches.fetch(step).images for step in range(config.calibrate)))
        logger.info("on %d batches: %s", config.calibrate, report)
    if config.reestimate:
        # After the calibration, which changes the input of the norms that keep statistics.
        count = reestimate(model, (batches.fetch(step).images for step in range(config.reestimate)))
        logger.info("running statistics of %d norms estimated on %d batches", count, config.reestimate)
    _copy_from_first(model, world)


def confine_to_source(model: Classifier, suite: Suite, config: RunConfig, world: World = ALONE) -> None:
    """Clamp the learned means of a trained model to their range on training images, without augmentation.

    Every process takes all of the images, and all continue with the result of the first.
    """
    from asrnorm.evaluation.inference import Inference
    from asrnorm.evaluation.score import evaluation_size, iterate_batches, subsample

    inference = Inference.of(model, precision=config.precision, size=evaluation_size(suite, config.augment))
    images = subsample(suite.train, config.confine)
    batches = (inference.to_input(batch) for _, batch, _ in iterate_batches(images, config.evaluate_batch))
    with inference.autocast():
        count = confine(model, batches)
    logger.info("learned means of %d layers confined to their range on %d source images", count, len(images))
    _copy_from_first(model, world)


def _copy_from_first(model: nn.Module, world: World) -> None:
    if world.size > 1:
        own: dict[str, Tensor] = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(from_first(own if world.rank == 0 else {}, world))
