"""Damage to bytes and to values, drawn by a `random.Random`, so that a number gives every input again."""

import copy
import functools
import json

import yaml

# What has broken readers: wrong types, numbers out of range, depth, length, names that lead elsewhere.
HOSTILE = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 10**20, int("9" * 400), 0.0, -0.5, 1e308, -1e308),
    *(float("inf"), float("nan"), "", " ", "x", "9" * 5000, "1e400", "\0", "\ud800", "\x1b[2J", "../../x", "/dev/zero"),
    *("a\nb", "=1+1", "<script>", [], {}, [[]], [None], {"": None}, {"a": {"b": []}}, ["x"] * 100),
)
TOKENS = (
    *(b"[" * 3000, b"{" * 3000, b'{"a":' * 300, b"9" * 400, b"9" * 5000, b"-1", b"1e999", b"NaN", b"null", b"true"),
    *(b'"', b"\\ud800", b"\r", b"\n", b"\n\n", b"\0", b"\xff\xff\xff\xff", b",", b":", b"- " * 300),
    *(b"&a *a", b"!!set ", b"1:" * 500, b"*", b"0x", b"../", b"\x1b[", b"\xef\xbb\xbf", b"\x80\x04", b"%"),
)


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast


def mutate_bytes(data, draw):
    """Return bytes after a few edits: flipped bits, cuts, repetitions, tokens."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        reach = draw.choice((16, 64, len(found)))
        at = draw.randrange(max(1, min(reach, len(found))))
        kind = draw.randrange(7)
        if kind == 0 and found:
            found[min(at, len(found) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del found[at:]
        elif kind == 2:
            del found[at : at + draw.choice((1, 2, 8, 64))]
        elif kind == 3:
            found[at:at] = draw.choice(TOKENS)
        elif kind == 4:
            token = draw.choice(TOKENS)
            found[at : at + len(token)] = token
        elif kind == 5:
            found[at:at] = found[at : at + draw.choice((1, 16, 256))]
        else:
            found[at : at + 1] = draw.randbytes(1)
    return bytes(found)


def mutate_value(value, draw):
    """Return a copy of nested dicts and lists in which one or two parts are replaced, removed, renamed or doubled."""
    root = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 2))):
        owner, key = root, 0
        while draw.random() < 0.8 and isinstance(inner := owner[key], dict | list) and inner:
            owner, key = inner, draw.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        kind = draw.randrange(8)
        if kind == 0 and owner is not root:
            del owner[key]
        elif kind == 1 and isinstance(owner, dict):
            owner[draw.choice(("x", "", "schema", "step", "name"))] = owner[key]
        elif kind == 2 and isinstance(owner, list) and owner is not root:
            owner.append(copy.deepcopy(owner[key]))
        else:
            owner[key] = copy.deepcopy(draw.choice(HOSTILE))
    return root[0]


def mutate_json(data, draw):
    """Return a JSON document, or one line of several, with other bytes or other values."""
    if draw.random() < 0.4:
        return mutate_bytes(data, draw)
    lines = data.splitlines() if data.count(b"\n") > 1 and not data.startswith(b"{\n") else [data]
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(mutate_value(json.loads(lines[at]), draw)).encode()
    return b"\n".join(lines) + b"\n"


def mutate_yaml(data, draw):
    """Return a YAML document with other bytes or other values."""
    if draw.random() < 0.5:
        return mutate_bytes(data, draw)
    value = mutate_value(read_yaml(data), draw)
    try:
        return yaml.dump(value, Dumper=DUMPER, sort_keys=False).encode()
    except UnicodeEncodeError:  # half a character, which only the slow one writes
        return yaml.safe_dump(value, sort_keys=False).encode("utf-8", "surrogatepass")


@functools.lru_cache
def read_yaml(data):
    return yaml.safe_load(data)
