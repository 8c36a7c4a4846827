"""Text of the command line and plain values of a YAML file to the typed fields of dataclasses, or one line why not.

One run, described whole: frozen dataclasses, to and from YAML, overridden from the command line, hashed.

A recipe returns a complete `RunConfig`; nothing is filled in elsewhere. The hash covers what changes numbers, so that
two folders with one hash hold the same run.
"""

import dataclasses
import math
import operator
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.core.hashing import difference, digest

NAMES = ("source", "target", "root")
"""Options of suites that name domains and folders, which may be called 01, 1e3 or on."""

_MOST_BRACKETS = 1000  # that PyYAML is given: its time grows with the square of their depth

# YAML 1.1 takes 1e-4 for text, since it has no point.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def parse(text: str) -> Any:
    """Return what YAML reads in a scalar or a list in brackets, and numbers as `1e-4` besides.

    Example:
        >>> parse("1e-4"), parse("[8, 16]"), parse("null"), parse("photo"), parse("C:/images")
        (0.0001, [8, 16], None, 'photo', 'C:/images')
    """
    import yaml

    if _EXPONENT.fullmatch(text):
        return float(text)
    if is_bracketed_beyond_reason(text):
        return text
    if ":" in text and not text.startswith(("{", "[", '"', "'")):
        return text  # a path or a domain, which YAML would read as a mapping or as minutes and seconds
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # of a date that is none, or of hundreds of brackets
        return text
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else text


def is_bracketed_beyond_reason(text: str) -> bool:
    """Tell whether a text has more brackets than any config, so that reading it as YAML could take hours.

    Example:
        >>> is_bracketed_beyond_reason("[8, 16]"), is_bracketed_beyond_reason("[" * 20_000)
        (False, True)
    """
    return text.count("[") + text.count("{") > _MOST_BRACKETS


def as_whole_number(value: Any, what: str) -> int:
    """Return an integer of any library as one of Python's, so that equal ones are written alike.

    Raises:
        InputTypeError: something else; a float too, though it be whole.

    Example:
        >>> import numpy as np
        >>> as_whole_number(np.int64(7), "the seed")
        7
    """
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} must be a whole number, not {value!r}") from None


def match_number(current: Any, value: Any) -> Any:
    """Return a number in the type of the one it replaces: `1e3` for an int, `1` for a float.

    Example:
        >>> match_number(1000, 2e3), match_number(1.0, 5), match_number(None, 5)
        (2000, 5.0, 5)
    """
    if isinstance(value, bool) or isinstance(current, bool):
        return value
    if isinstance(current, float) and isinstance(value, int):
        return float(value)
    if isinstance(current, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def build(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a dataclass from plain values, each checked against the type of its field.

    Args:
        kind: the dataclass; its fields may be dataclasses too.
        values: by field.
        where: what the values come from, for messages.

    Raises:
        UnknownNameError: a field that does not exist, or a word that is none of those allowed.
        InputError: a value of the wrong type, or a field that is missing.
    """
    hints = _hints(kind)
    for name in values:
        if name not in hints:
            raise UnknownNameError(f"{where}: " + describe_unknown("field", str(name), hints))
    try:
        return kind(**{name: _convert(hints[name], value, f"{where}: {name}") for name, value in values.items()})
    except TypeError as error:
        raise InputError(f"{where}: {error}".replace(f"{kind.__name__}.__init__() ", "")) from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} must be a mapping, not {value!r}")
        return build(hint, value, where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(f"{where}: " + describe_unknown("value", str(value), map(str, get_args(hint))))
        return value
    if hint == str | None:
        if value is not None and not isinstance(value, str | Path):
            raise InputError(f"{where} must be text or null, not {value!r}")
        return None if value is None else str(value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, not {value!r}")
        return tuple(_convert(get_args(hint)[0], part, where) for part in value)
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InputError(f"{where} must be a mapping of names to values, not {value!r}")
        return {key: _convert_option(part, f"{where}.{key}") for key, part in value.items()}
    if hint is float and isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint is int and not isinstance(value, int) and hasattr(value, "__index__"):
        return as_whole_number(value, where)  # of NumPy
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise InputError(f"{where} must be {hint.__name__}, not {value!r}")
    return value


def _convert_option(value: Any, where: str) -> Any:
    """Return an option of a choice, whose type only its registry knows, if it can be stored and hashed."""
    is_name = where.rpartition(".")[2] in NAMES
    if is_name and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return float(value) if _EXPONENT.fullmatch(value) and not is_name else value
    if isinstance(value, list | tuple):
        return [_convert_option(part, where) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _convert_option(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise InputError(f"{where} must be text, a number, a list or null, not {value!r}; quote it if it is text")


Selection = Literal["last", "source-val", "shifted-val", "oracle"]
Scale = Literal["paper", "short", "smoke"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A registry name and its keyword options."""

    name: str
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and schedule.

    Attributes:
        decay_lambdas: apply weight decay to the lambdas of ASR-Norm too; with it alone they drift from .05 to .5.
        schedule: over the whole run; `step` multiplies by `step_factor` at the fraction `step_at` of the steps.
        gate_lr: learning rate of BIN's gates over `lr`; they never decay.
        warmup_steps: steps over which the learning rate rises linearly from 0.
        norm_warmup_steps: for so many steps only the converted norms and the classifier are trained; the rest has a
            learning rate of 0, and its own warm-up after that.
        norm_lr: learning rate of the small networks of ASR-Norm over `lr`.
        decay_networks: apply weight decay to those networks, and to `gamma_bias` and `beta_bias`.
        head_lr: learning rate of the classifier over `lr`, for one that is new to a pretrained network.
    """

    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_lambdas: bool = True
    schedule: Literal["constant", "cosine", "step"] = "constant"
    step_at: float = 0.8
    step_factor: float = 0.1
    gate_lr: float = 10.0
    warmup_steps: int = 0
    norm_warmup_steps: int = 0
    norm_lr: float = 1.0
    decay_networks: bool = True
    head_lr: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "step_factor", "gate_lr", "norm_lr", "head_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"optim.{name} must be a finite number of at least 0, not {value}")
        for name in ("warmup_steps", "norm_warmup_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"optim.{name} must be at least 0, not {getattr(self, name)}")
        if self.nesterov and self.name == "sgd" and not self.momentum:
            raise InputError("optim.nesterov needs momentum: give optim.momentum above 0")
        if not 0 <= self.step_at <= 1:
            raise InputError(f"optim.step_at is a share of the steps, between 0 and 1, not {self.step_at}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that one run depends on.

    Attributes:
        recipe: name of the recipe it came from.
        scale: the scale that recipe was built at.
        weights: file of pretrained weights, under the data folder where relative.
        layers: which norms of a pretrained network are converted.
        calibrate: source batches on which the conversion is calibrated before training; 0 does not.
        reestimate: source batches from which running statistics are estimated before training; 0 does not.
        confine: source images by whose range the learned means of ASR-Norm are confined after training; 0 leaves them
            free, as in the paper.
        augment: of the training images: nothing, CIFAR's crop and flip, or PACS's set.
        shuffle: draw batches at random; off keeps the order of the set, as the Digits protocols do.
        selection: which checkpoint is reported; `oracle` looks at the targets and is labelled so.
        evaluate_every: steps between evaluations for the selection; 0 makes none, which `last` alone can do with.
        evaluate_batch: images in an evaluation batch; changes numbers for `bn_test` only.
        evaluate_limit: at most so many images of each domain are evaluated, spread evenly over it; 0 takes all.
        adversarial: also report accuracy under attack.
        device: cpu or cuda, with a number as in `cuda:1` or without, or mps to evaluate; `auto` is a GPU where there is
            one.
        capture: on a CUDA device, replay whole steps as graphs where the method allows it.
        checkpoint_every: steps between checkpoints.
        log_every: steps between rows of the log.
        lambda_every: steps between rows with the lambdas of every layer; 0 leaves them out.
    """

    recipe: str
    scale: Scale = "paper"
    seed: int = 0
    suite: Choice
    model: Choice
    norm: Choice
    method: Choice
    optim: OptimConfig
    steps: int
    batch_size: int
    weights: str | None = None
    layers: str = "auto"
    calibrate: int = 0
    reestimate: int = 0
    confine: int = 0
    augment: Literal["none", "cifar", "pacs"] = "none"
    shuffle: bool = True
    selection: Selection = "last"
    evaluate_every: int = 0
    evaluate_batch: int = 500
    evaluate_limit: int = 0
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = "float32"
    adversarial: bool = False
    device: str = "auto"
    compile: bool = False
    capture: bool = True
    checkpoint_every: int = 500
    log_every: int = 50
    lambda_every: int = 500

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.+-]*", self.recipe):  # it is part of the name of a folder
            raise InputError(f"recipe must be a name of letters, digits and ._+-, not {self.recipe!r:.80}")
        for name in ("steps", "batch_size", "evaluate_batch", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("evaluate_every", "evaluate_limit", "lambda_every", "calibrate", "reestimate", "confine"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}")
        root = self.suite.args.get("root")
        if isinstance(root, str | Path):  # a run may be opened from another folder
            args = {**self.suite.args, "root": _settle(Path(root).expanduser().absolute())}
            object.__setattr__(self, "suite", dataclasses.replace(self.suite, args=args))


def _settle(path: Path) -> str:
    """Return a path without `..`, where the system leads to: after a link that is not the folder it is named in."""
    up = max((place for place, part in enumerate(path.parts, 1) if part == ".."), default=0)
    return os.path.normpath(Path(os.path.realpath(Path(*path.parts[:up])), *path.parts[up:]) if up else path)


def to_mapping(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain dicts, lists and scalars, the form in which it is stored."""
    return dataclasses.asdict(config)


def from_mapping(values: Mapping[str, Any], where: str = "config") -> RunConfig:
    """Return the config that `to_mapping` made.

    Raises:
        UnknownNameError: a field that does not exist; the nearest one is named.
        InputError: a value of the wrong type.
    """
    built: RunConfig = build(RunConfig, values, where)
    return built


def content_hash(config: RunConfig) -> str:
    """Return ten hex digits over the fields that change numbers: not paths, not logging, not the device.

    The root of a user's own images is hashed: there the path is the only name that the data have. Fields that were
    added since the first kept results are left out where they change nothing.

    Example:
        >>> config = RunConfig(recipe="x", suite=Choice(name="digits"), model=Choice(name="digits_convnet"),
        ...     norm=Choice(name="asr"), method=Choice(name="erm"), optim=OptimConfig(), steps=1, batch_size=1)
        >>> content_hash(config) == content_hash(dataclasses.replace(config, device="cpu"))
        True
    """
    return digest(to_mapping(config))


def run_name(config: RunConfig) -> str:
    """Return the name of a run's folder: recipe, seed, and ten digits over all that changes its numbers.

    Example:
        >>> run_name(RunConfig(recipe="pacs.erm_asr", suite=Choice(name="pacs"), model=Choice(name="resnet18"),
        ...     norm=Choice(name="asr"), method=Choice(name="erm"), optim=OptimConfig(), steps=1, batch_size=1))[:18]
        'pacs.erm_asr--s0--'
    """
    return f"{config.recipe}--s{config.seed}--{content_hash(config)}"


_NAMES = {f"suite.{name}": name for name in NAMES}


def override(config: RunConfig, assignments: Mapping[str, Any]) -> RunConfig:
    """Return the config with fields replaced, as `--set a.b=value` does.

    `method=rsda` picks another method with its defaults, `method.interval=500` sets one of its options,
    `optim.lr=0.01` a field. Text is read as YAML reads a scalar.

    Example:
        >>> config = RunConfig(recipe="x", suite=Choice(name="pacs"), model=Choice(name="resnet18"),
        ...     norm=Choice(name="asr"), method=Choice(name="erm"), optim=OptimConfig(), steps=1, batch_size=1)
        >>> override(config, {"optim.lr": "0.01", "suite.source": "photo"}).suite.args
        {'source': 'photo'}
    """
    values = to_mapping(config)
    # `method=rsda` before `method.interval=500`, in whatever order they come: it sets all options back.
    for path, value in sorted(assignments.items(), key=lambda item: item[0].count(".")):
        parsed = parse(value) if isinstance(value, str) else value
        if path in _NAMES and isinstance(parsed, int | float):
            values["suite"]["args"][_NAMES[path]] = str(value)
        else:
            _assign(values, path, parsed)
    return from_mapping(values, "--set")


def load_config(path: Path) -> RunConfig:
    """Read a `config.yaml`."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if is_bracketed_beyond_reason(text):
            raise InputError(f"{path}: not YAML of a config, with {text.count('[') + text.count('{'):,} brackets")
        # Aliases of aliases grow beyond any memory.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise InputError(f"{path}: has a YAML alias (*name); write its value out")
        _refuse_keys_given_twice(yaml.compose(text, yaml.SafeLoader), path)
        values = yaml.safe_load(text)
    except InputError:
        raise  # a ValueError too
    except FileNotFoundError:
        raise InputError(f"{path}: no such config file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # of a date that is none, or of hundreds of brackets
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no config")
    return from_mapping(values, str(path))


def _refuse_keys_given_twice(node: Any, path: Path) -> None:
    """Refuse a mapping in which a later value would silently take the place of an earlier one."""
    import yaml

    parts = list(node.value) if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise InputError(f"{path}: line {key.start_mark.line + 1} gives {key.value!r} a second time")
            seen.add(key.value)
        parts = [value for _, value in node.value]
    for part in parts:
        _refuse_keys_given_twice(part, path)


def dump_config(config: RunConfig) -> str:
    """Return a config as YAML, itself a valid `--config` file."""
    import yaml

    return str(yaml.safe_dump(to_mapping(config), sort_keys=False))


def first_difference(mine: RunConfig, theirs: RunConfig) -> str | None:
    """Return the dotted name and both values of the first field in which the runs differ, `None` where none does.

    Fields that `content_hash` leaves out do not count: configs of one hash do not differ.
    """
    return difference(to_mapping(mine), to_mapping(theirs))


def _assign(values: dict[str, Any], path: str, value: Any) -> None:
    head, _, rest = path.partition(".")
    if head not in values:
        raise UnknownNameError(describe_unknown("config field", head, values))
    current = values[head]
    if not isinstance(current, dict):
        if rest:
            raise UnknownNameError(f"config field {head!r} has no parts, so {path!r} does not exist")
        values[head] = value
    elif set(current) == {"name", "args"}:
        if rest:
            current["args"][rest] = match_number(current["args"].get(rest), value)
        else:
            values[head] = {"name": value, "args": {}}
    else:
        if not rest:
            raise InputError(f"config field {head!r} has parts: set {', '.join(f'{head}.{part}' for part in current)}")
        _assign(current, rest, value)
