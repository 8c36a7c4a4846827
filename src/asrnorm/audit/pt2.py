"""Load `.pt2` files of torch.export without running code that they carry.

`torch.export.load` unpickles members of the archive, loads its shared libraries, evaluates its symbolic expressions,
and generates Python source from its names. `load_pt2` therefore reads the file once, checks all of it against
what `torch.export.save` writes for a plain network, and gives torch an archive rebuilt from the checked parts alone.
"""

import ast
import dataclasses
import enum
import io
import json
import logging
import re
import types
import typing
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from asrnorm.audit.model import AuditedModule, InputSpec, tensor_bytes
from asrnorm.core.errors import InputError, first_line

_TRUST = "--trust loads it all the same, if you trust who made it"

_PROGRAM, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = {"data/weights/model_weights_config.json": "weight", "data/constants/model_constants_config.json": "tensor"}
_MEMBER = re.compile(
    r"archive_format|archive_version|byteorder|\.data/(version|serialization_id)|models/model\.json"
    r"|data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|data/sample_inputs/model\.pt|extra/[\w. -]+",
    re.ASCII,
)

# Names reach generated source: bare, or between quotes for parts of a path that are no identifiers.
_NAME = re.compile(r"\w*", re.ASCII)
_PATH = re.compile(r"((?!__)[\w/:@+ -]*)(\.(?!__)[\w/:@+ -]*)*", re.ASCII)
_SYMBOL = re.compile(r"[a-z_]+\d{1,5}", re.ASCII)
_NUMBER = re.compile(r"-?[\d.]+(e[+-]?\d+)?", re.ASCII)

# What `sympy.srepr` writes for sizes: calls of these, on one another and on constants.
_FUNCTION = re.compile(
    "Symbol|Integer|Float|Rational|Add|Mul|Pow|Mod|Max|Min|Abs|floor|ceiling|Equality|Unequality|LessThan|GreaterThan"
    "|StrictLessThan|StrictGreaterThan|And|Or|Not|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilToInt"
    "|FloorToInt|CeilDiv|LShift|RShift|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|TruncToFloat|TruncToInt"
    "|RoundToInt|RoundDecimal|ToFloat|Identity|IsNonOverlappingAndDenseIndicator"
)
_CONSTANT = re.compile("true|false|oo")

_OTHER_OPERATOR = re.compile(
    r"_operator\.(add|and_|eq|floordiv|ge|gt|le|lshift|lt|mod|mul|ne|neg|or_|pos|pow|rshift|sub|truediv)|math\.trunc"
    r"|torch\.(_sym_sqrt|sym_float|sym_int|sym_ite|sym_max|sym_min|sym_not)"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
)
# Text arguments that choose a mode. Operators that take other text touch files (`aten::save`, `aten::from_file`).
_MODE = re.compile(
    "approximate|assert_msg|driver|equation|indexing|interpolation|mode|norm|ord|p|pad_mode|padding|padding_side"
    "|reduce|rounding_mode|side|UPLO"
)
_CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")


class _RefusedError(Exception):
    """Something that `torch.export.save` does not write for a plain network."""


def load_pt2(path: Path, input_spec: InputSpec, device: torch.device, *, trust: bool = False) -> AuditedModule:
    """Return the program in a `.pt2` file; sizes that the file fixes are added to `input_spec`.

    With `trust`, it loads whatever the file holds, as `torch.export.load` does: it can run code.
    """
    content = path.read_bytes()
    with _one_line_errors(path):
        program = torch.export.load(io.BytesIO(content) if trust else _rebuild(content))
        names = program.graph_signature.user_inputs
        if len(names) != 1:
            raise InputError(f"{path}: takes {len(names)} inputs; an audit needs one, images (n, 3, h, w)")
        images = next(node for node in program.graph.nodes if node.name == names[0]).meta["val"]
        if not isinstance(images, torch.Tensor) or images.ndim != 4 or not images.is_floating_point():
            raise InputError(f"{path}: its input is no float tensor (n, 3, h, w)")
        if images.device.type != device.type:
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, str(device))
        network = program.module()
    # Dynamic sizes are symbols.
    batch, _, height, width = (size if type(size) is int else None for size in images.shape)
    input_spec = replace(input_spec, batch=batch, size=(height, width) if height and width else None)
    constants = (part for item in sorted(program.constants.items()) for part in tensor_bytes(*item))
    code = b"".join([str(program.graph).encode(), *constants])
    model = AuditedModule(
        path.name, network, input_spec, device=device, kind="torch-export", source=code, exported=True
    )
    model.module.dtype = images.dtype
    return model


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Turn whatever torch raises, logs or warns about a file into one error line."""
    log = logging.getLogger("torch.export")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except InputError:
        raise
    except _RefusedError as error:
        raise InputError(f"{path}: {error}; such a file can run code and is not loaded ({_TRUST})") from error
    except Exception as error:  # torch's reader raises anything for a damaged archive
        line = first_line(error)
        reason = "" if "warnings above" in line else f" ({line})"  # the warnings are silenced
        raise InputError(f"{path}: not a file of torch.export that this torch can read{reason}") from error
    finally:
        log.setLevel(before)


def _rebuild(content: bytes) -> io.BytesIO:
    """Return an archive with the program and the tensors of another one, all of them checked.

    Sample inputs, extra files, guards and the notes on nodes are left out: no prediction needs them, and torch
    unpickles or evaluates some of them.
    """
    from torch._export.serde import schema

    members = _read_members(content)
    rebuilt = io.BytesIO()
    with zipfile.ZipFile(rebuilt, "w") as archive:
        for name, data in members.items():
            if name == _PROGRAM:
                data = json.dumps(_clean(schema.ExportedProgram, json.loads(data))).encode()
            elif name in _CONFIGS:
                config = _clean(schema.PayloadConfig, json.loads(data))
                _check_tensors(config["config"], _CONFIGS[name])
                data = json.dumps(config).encode()
            elif name == _SAMPLES:
                data = b""
            elif name.startswith("extra/"):
                continue
            archive.writestr(f"model/{name}", data)
    rebuilt.seek(0)
    return rebuilt


def _read_members(content: bytes) -> dict[str, bytes]:
    """Return the members of an archive by their names below its one top folder."""
    members: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        top = infos[0].filename.partition("/")[0] if infos else ""
        if f"{top}/{_PROGRAM}" not in archive.namelist():
            raise ValueError(f"no {_PROGRAM} in it")
        if sum(info.file_size for info in infos) > len(content):
            raise _RefusedError("its members are compressed, or overlap")
        for info in infos:
            folder, _, name = info.filename.partition("/")
            if folder != top or not _MEMBER.fullmatch(name) or ".." in name:
                raise _RefusedError(f"holds {info.filename!r}, which is no part of a plain network")
            if name in members:
                raise _RefusedError(f"holds {info.filename!r} twice")
            members[name] = archive.read(info)
    return members


def _check_tensors(config: dict[str, Any], kind: str) -> None:
    """Raise unless every entry is a plain tensor in a member of its own folder."""
    for name, entry in config.items():
        if entry["use_pickle"] or entry["tensor_meta"] is None:
            raise _RefusedError(f"{name!r} is pickled, not a plain tensor")
        _require(re.compile(rf"{kind}_\d+", re.ASCII), entry["path_name"], "the member of a tensor")


def _clean(kind: Any, data: Any) -> Any:
    """Return JSON data that has the type `kind` of torch's schema, without fields that the type lacks.

    Raises:
        ValueError: data of another type.
        _RefusedError: a value that one of the rules below forbids.
    """
    if typing.get_origin(kind) is typing.Annotated:
        return _clean(kind.__origin__, data)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else _clean(arguments[0], data)
    if origin is list and isinstance(data, list):
        return [_clean(arguments[0], item) for item in data]
    if origin is dict and isinstance(data, dict):
        return {key: _clean(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        return _clean_fields(typing.cast("type", kind), data)
    if kind is float and data in ("Infinity", "-Infinity", "NaN"):
        return data
    plain = int if isinstance(kind, type) and issubclass(kind, enum.IntEnum) else kind
    if type(data) is plain or (plain is float and type(data) is int):
        return data
    raise ValueError(f"it has {_shorten(data)} where the format has {getattr(kind, '__name__', kind)}")


def _clean_fields(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    from torch._export.serde import schema
    from torch._export.serde.union import _Union

    hints = typing.get_type_hints(kind, globalns=vars(schema))
    if issubclass(kind, _Union) and len(data) != 1:
        raise ValueError(f"it has {_shorten(data)} where the format has one {kind.__name__}")
    cleaned = {}
    for name, value in data.items():
        rule = _RULES.get(f"{kind.__name__}.{name}") or _RULES.get(name)
        if name in hints and (rule is not None or "str" not in str(hints[name])):
            value = _clean(hints[name], value)
            cleaned[name] = value if rule is None or value is None else rule(value)
    return cleaned


def _require(pattern: re.Pattern[str], text: str, what: str = "a name") -> str:
    if not pattern.fullmatch(text):
        raise _RefusedError(f"its program has {_shorten(text)} for {what}")
    return text


_name, _path = partial(_require, _NAME), partial(_require, _PATH)


def _check_expression(text: str) -> str:
    """Return a symbolic expression that only calls functions of sizes on symbols and numbers."""
    try:
        known = _is_size(ast.parse(text, mode="eval").body)
    except SyntaxError:
        known = False
    if not known:
        raise _RefusedError(f"its program has {_shorten(text)} for a size")
    return text


def _is_size(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and _is_size(node.operand)
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Name):
        return _CONSTANT.fullmatch(node.id) is not None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not _FUNCTION.fullmatch(node.func.id):
        return False
    options = [word.value for word in node.keywords if word.arg]
    plain = all(isinstance(option, ast.Constant) and not isinstance(option.value, str) for option in options)
    if not plain or len(options) != len(node.keywords):
        return False
    texts = {"Symbol": _SYMBOL, "Float": _NUMBER}.get(node.func.id)
    if texts is None:
        return all(_is_size(argument) for argument in node.args)
    (argument,) = node.args if len(node.args) == 1 else (None,)
    return isinstance(argument, ast.Constant) and texts.fullmatch(str(argument.value)) is not None


def _check_operator(target: str) -> str:
    """Return the name of an operator of PyTorch that computes, and does not touch files."""
    names = target.split(".")
    if len(names) == 5 and names[:2] == ["torch", "ops"] and names[2] in ("aten", "prims"):
        operator = getattr(getattr(getattr(torch.ops, names[2]), names[3], None), names[4], None)
        if isinstance(operator, torch._ops.OpOverload):
            texts = (one.name for one in operator._schema.arguments if "str" in str(one.type))
            if all(_MODE.fullmatch(name) for name in texts):
                return target
    if not _OTHER_OPERATOR.fullmatch(target):
        raise _RefusedError(f"its program calls {_shorten(target)}, which is no plain operator of PyTorch")
    return target


def _clean_tree(text: str) -> str:
    """Return the structure of inputs or outputs, of tuples, lists and dicts alone."""
    version, tree = json.loads(text)
    return json.dumps([_clean(int, version), _clean_node(tree)])


def _clean_node(node: Any) -> dict[str, Any]:
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise ValueError(f"it has {_shorten(node)} where the format has a container")
    kind, context = node.get("type"), node.get("context")
    if kind is not None and kind not in _CONTAINERS:
        raise _RefusedError(f"its program takes or returns {_shorten(kind)}, not tensors in tuples, lists and dicts")
    keys = None if context is None else json.loads(_clean(str, context))
    keys = None if keys is None else [_path(key) for key in _clean(list[str], keys)]
    context = None if kind is None else json.dumps(keys)
    return {"type": kind, "context": context, "children_spec": [_clean_node(child) for child in node["children_spec"]]}


def _refuse_object(value: Any) -> Any:
    if value:
        raise _RefusedError("its program needs objects that are pickled")
    return value


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {_path(name): value for name, value in values.items()}


# What becomes of every text of the program, by field, or by type and field. A text without a rule is left out.
_RULES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("name", "as_name", "path_name", "Device.type"), _name),
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "user_input_name", "fqn"), _path),
    # Any text: torch compares these, or writes them into source by their `repr`.
    **dict.fromkeys(("as_string", "as_strings", "torch_version", "verifiers"), lambda text: text),
    **dict.fromkeys(("sym_bool_values", "sym_float_values", "sym_int_values", "tensor_values"), _named),
    **dict.fromkeys(("as_string_to_argument", "opset_version", "PayloadConfig.config"), _named),
    **dict.fromkeys(("as_custom_obj", "custom_obj", "custom_obj_values"), _refuse_object),
    **dict.fromkeys(("guards_code", "metadata", "treespec_namedtuple_fields"), lambda value: type(value)()),
    **dict.fromkeys(("as_operator", "Node.target"), _check_operator),
    **dict.fromkeys(("in_spec", "out_spec"), _clean_tree),
    "forward_arg_names": lambda names: [_name(name) for name in names],
    "range_constraints": lambda ranges: {_require(_SYMBOL, name, "a symbol"): ranges[name] for name in ranges},
    "expr_str": _check_expression,
}


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
