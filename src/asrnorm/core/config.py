"""The configuration of one run: frozen dataclasses, YAML, `--set` overrides and the hash.

A recipe returns a complete `RunConfig`; no other place fills in values. The hash covers the fields that change numbers,
so two run folders with the same hash hold the same run.
"""

import dataclasses
import math
import operator
import os
import re
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.core.hashing import difference, digest
from asrnorm.core.reading import check_int, parse_yaml, read_yaml

# Suite options that hold names of domains or folders: a domain may be called `01`, `1e3` or `on`.
NAMES = ("source", "target", "root")
# YAML 1.1 reads 1e-4 as text, because it has no decimal point.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_get_hints = cache(get_type_hints)

Selection = Literal["last", "source-val", "shifted-val", "oracle"]
Chain = (
    str | list[str | dict[str, Any]]
)  # a registry name, or a list of names and of mappings with a `name` and options
Scale = Literal["paper", "short", "smoke"]
Fold = Literal["none", "values", "structure"]
"""A half of the bank of augmentations: those that change values of pixels, and those that filter and move them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A registry name and its keyword options."""

    name: str
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and schedule; `norm_lr`, `lambda_lr`, `gate_lr` and `head_lr` are relative to `lr`."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_lambdas: bool = True  # also the lambdas of ASR-Norm; decay alone moves them from .05 towards .5
    schedule: Literal["constant", "cosine", "step"] = "constant"
    step_at: float = 0.8  # `step` multiplies the rate by `step_factor` once this share of the steps is done
    step_factor: float = 0.1
    step_again: float = 1.0  # the share after which `step` does so once more; 1 for never
    gate_lr: float = 10.0  # of the gates of BIN and DSON, which have no weight decay
    warmup_steps: int = 0  # steps over which the learning rate rises linearly from 0
    # Steps that train only the converted norms and the classifier; the others have a rate of 0, then their own warm-up.
    norm_warmup_steps: int = 0
    norm_lr: float = 1.0  # of the small networks of ASR-Norm
    lambda_lr: float = 1.0  # of the lambdas of ASR-Norm
    decay_networks: bool = True  # apply weight decay to those networks, and to `gamma_bias` and `beta_bias`
    head_lr: float = 1.0  # of the classifier, for a new one on a pretrained network

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "step_factor", "gate_lr", "norm_lr", "lambda_lr", "head_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"optim.{name} must be a finite number of at least 0, not {value}")
        for name in ("warmup_steps", "norm_warmup_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"optim.{name} must be at least 0, not {getattr(self, name)}")
        if self.nesterov and self.name == "sgd" and not self.momentum:
            raise InputError("optim.nesterov needs momentum: give optim.momentum above 0")
        for name in ("step_at", "step_again"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"optim.{name} is a share of the steps, between 0 and 1, not {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything one run depends on."""

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
    weights: str | None = None  # file of pretrained weights; relative paths start at the data folder
    layers: str = "auto"  # which norms of a pretrained network are converted
    calibrate: int = 0  # source batches that calibrate the conversion before training; 0 skips it
    reestimate: int = 0  # source batches that estimate running statistics before training; 0 skips it
    confine: int = 0  # source images whose range clamps the learned means of ASR-Norm; 0 leaves them free, as the paper
    # Train on each test image before it is classified, as TTT does: from the trained weights (`slow`) or from those
    # that the image before it left (`online`).
    adapt: Literal["none", "slow", "online"] = "none"
    augment: Chain = "none"  # of the training images
    average: Choice = Choice(name="none")  # of the weights along the run; it is what is selected, scored and saved
    blocks: Chain = "none"  # inserted in training; a mapping may have the `layers` that the block follows
    shuffle: bool = True  # draw batches at random; `False` keeps the order of the set, as the Digits protocols do
    selection: Selection = "last"  # picks the reported checkpoint; `oracle` looks at the targets and is labelled so
    fold: Fold = "none"  # of the augmentations to train with; the rest measures `shifted-val`, no target is scored
    selection_ties: Literal["first", "last"] = "first"  # which of several equally good checkpoints that rule picks
    evaluate_every: int = 0  # steps between evaluations for the selection; 0 for none, allowed with `last` only
    evaluate_batch: int = 500  # changes numbers for `bn_test` only
    evaluate_limit: int = 0  # evaluate at most this many images of each domain, spread evenly; 0 takes all
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = "float32"
    adversarial: bool = False  # also report accuracy under attack
    device: str = "auto"  # `cpu`, `cuda`, `cuda:1`, or `mps` (evaluation only); `auto` picks a GPU where there is one
    compile: bool = False
    capture: bool = True  # replay whole training steps as CUDA graphs where the method allows it
    checkpoint_every: int = 500  # in steps, like the next two
    log_every: int = 50
    lambda_every: int = 500  # the lambdas of every layer; 0 for none

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.+-]*", self.recipe):  # part of a folder name
            raise InputError(f"recipe must be a name of letters, digits and ._+-, not {self.recipe!r:.80}")
        for name in ("steps", "batch_size", "evaluate_batch", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("evaluate_every", "evaluate_limit", "lambda_every", "calibrate", "reestimate", "confine"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("augment", "blocks"):
            object.__setattr__(self, name, normalize_chain(getattr(self, name), name))
        # Absolute, because a run may be opened from another folder.
        files = {key: self.suite.args.get(key) for key in ("root", "aliases")}
        paths = {k: _normalize(Path(v).expanduser().absolute()) for k, v in files.items() if isinstance(v, str | Path)}
        if paths:
            object.__setattr__(self, "suite", dataclasses.replace(self.suite, args={**self.suite.args, **paths}))


def _normalize(path: Path) -> str:
    """Return a path without `..`; links in front of a `..` are resolved first, as the system does."""
    up = max((index for index, part in enumerate(path.parts, 1) if part == ".."), default=0)
    return os.path.normpath(Path(os.path.realpath(Path(*path.parts[:up])), *path.parts[up:]) if up else path)


def normalize_chain(value: Any, where: str) -> Chain:
    """Return a name, or a list of names and mappings, in the one form in which it is stored and hashed.

    A mapping without options becomes its name, `none` is left out, and a list of one name becomes that name.

    Example:
        >>> normalize_chain(["none", {"name": "pacs"}], "augment"), normalize_chain([{"name": "edges", "gain": 2}], "")
        ('pacs', [{'name': 'edges', 'gain': 2}])
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} must be a name or a list of names and mappings, not {value!r:.80}")
    parts: list[str | dict[str, Any]] = []
    for part in value:
        if not isinstance(part, str) and not (isinstance(part, Mapping) and isinstance(part.get("name"), str)):
            raise InputError(f"{where} lists names, and mappings with a name and options, not {part!r:.80}")
        if isinstance(part, Mapping):
            part = {str(key): _convert_option(one, f"{where}.{key}") for key, one in part.items()}
        name = part if isinstance(part, str) else part["name"]
        if name != "none":
            parts.append(name if isinstance(part, str) or len(part) == 1 else part)
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return parts or "none"


def to_mapping(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain dicts, lists and scalars, its stored form."""
    return dataclasses.asdict(config)


def from_mapping(values: Mapping[str, Any], where: str = "config") -> RunConfig:
    """Return the config of a mapping made by `to_mapping`; errors are those of `build`."""
    return cast(RunConfig, build(RunConfig, values, where))


def content_hash(config: RunConfig) -> str:
    """Return ten hex digits over the fields that change numbers; paths, logging and the device are left out.

    The root of a user's own images is included, because the path is the only name these data have. Fields added after
    the first kept results are left out at the value that changes nothing.
    """
    return digest(to_mapping(config))


def run_name(config: RunConfig) -> str:
    """Return the name of a run folder: recipe, seed and content hash."""
    return f"{config.recipe}--s{config.seed}--{content_hash(config)}"


def override(config: RunConfig, assignments: Mapping[str, Any]) -> RunConfig:
    """Return the config with fields replaced, as `--set a.b=value` does.

    `method=rsda` picks another method with its defaults, `method.interval=500` sets one of its options,
    `optim.lr=0.01` a field. Text is parsed as a YAML scalar.

    Example:
        >>> config = RunConfig(recipe="x", suite=Choice(name="pacs"), model=Choice(name="resnet18"),
        ...     norm=Choice(name="asr"), method=Choice(name="erm"), optim=OptimConfig(), steps=1, batch_size=1)
        >>> override(config, {"optim.lr": "0.01", "suite.source": "photo"}).suite.args
        {'source': 'photo'}
    """
    values = to_mapping(config)
    # `method=rsda` resets all options, so it goes before `method.interval=500` whatever the order given.
    for path, value in sorted(assignments.items(), key=lambda item: item[0].count(".")):
        parsed = parse(value) if isinstance(value, str) else value
        if path in [f"suite.{name}" for name in NAMES] and isinstance(parsed, int | float):
            values["suite"]["args"][path.removeprefix("suite.")] = str(value)
        else:
            _assign(values, path, parsed)
    return from_mapping(values, "--set")


def load_config(path: Path) -> RunConfig:
    """Read a `config.yaml`."""
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no config")
    return from_mapping(values, str(path))


def dump_config(config: RunConfig) -> str:
    """Return a config as YAML, a valid `--config` file."""
    import yaml

    return str(yaml.safe_dump(to_mapping(config), sort_keys=False))


def first_difference(mine: RunConfig, theirs: RunConfig) -> str | None:
    """Return the dotted name and both values of the first field of `content_hash` that differs, or `None`."""
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


def parse(text: str) -> Any:
    """Return a command-line value as YAML reads it: a scalar or a bracketed list; `1e-4` is a number too.

    Example:
        >>> parse("1e-4"), parse("[8, 16]"), parse("null"), parse("photo"), parse("C:/images")
        (0.0001, [8, 16], None, 'photo', 'C:/images')
    """
    if _EXPONENT.fullmatch(text):
        return float(text)
    if ":" in text and not text.startswith(("{", "[", '"', "'")):
        return text  # a path or a domain; YAML would read a mapping or a sexagesimal number
    try:
        value = parse_yaml(text)
    except InputError:  # what is not YAML is text, as is a number of more than 64 bits
        return text
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else text


def as_whole_number(value: Any, what: str) -> int:
    """Return an integer of any library (NumPy, torch) as an `int`; raise `InputTypeError` for others, even 7.0."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} must be a whole number, not {value!r}") from None


def match_number(current: Any, value: Any) -> Any:
    """Convert a number to the type of the one it replaces: `1e3` becomes an int, `1` a float."""
    if isinstance(value, bool) or isinstance(current, bool):
        return value
    if isinstance(current, float) and isinstance(value, int):
        return float(check_int(value))
    if isinstance(current, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def build(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Build a dataclass from plain values; raise `UnknownNameError` or `InputError` for one that does not fit."""
    hints = _get_hints(kind)
    for name in values:
        if name not in hints:
            raise UnknownNameError(f"{where}: " + describe_unknown("field", str(name), hints))
    try:
        return kind(**{name: _convert(hints[name], value, f"{where}: {name}") for name, value in values.items()})
    except TypeError as error:
        raise InputError(f"{where}: {error}".replace(f"{kind.__name__}.__init__() ", "")) from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} must be a mapping, not {value!r}")
        return build(hint, value, where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(f"{where}: " + describe_unknown("value", str(value), map(str, get_args(hint))))
        return value
    if hint == Chain:
        return normalize_chain(value, where)
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
        kind = get_args(hint)[1]
        convert = _convert_option if kind is Any else partial(_convert, kind)
        return {key: convert(part, where=f"{where}.{key}") for key, part in value.items()}
    if hint is float and isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    if isinstance(value, int):
        check_int(value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint is int and not isinstance(value, int) and hasattr(value, "__index__"):
        return as_whole_number(value, where)  # NumPy integers
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise InputError(f"{where} must be {hint.__name__}, not {value!r}")
    return value


def _convert_option(value: Any, where: str) -> Any:
    """Return a registry option as a value that can be stored and hashed; the registry checks its type later."""
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
    if isinstance(value, int):
        return check_int(value, where)
    if value is None or isinstance(value, float):
        return value
    raise InputError(f"{where} must be text, a number, a list or null, not {value!r}; quote it if it is text")
