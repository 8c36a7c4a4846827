"""Mutated files: every reader returns a consistent result or raises one InputError line, and takes little memory."""

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import InputError
from helpers.reader_formats import FORMATS

MAX_MEMORY = 48 << 20


@st.composite
def mutations(draw, data):
    """A few edits, more often near the start, where the headers are."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        reach = draw(st.sampled_from([16, 64, len(mutated) or 1]))
        at = draw(st.integers(0, max(0, min(reach, len(mutated)) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "delete", "insert", "huge", "repeat"]))
        if kind == "set":
            mutated[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "cut":
            del mutated[at:]
        elif kind == "delete":
            del mutated[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            mutated[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "huge":
            mutated[at : at + 4] = draw(st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"9999"]))
        else:
            mutated[at:at] = mutated[at : at + 16]
    return bytes(mutated)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_unharmed_file_is_read(kind, tmp_path):
    read, data, name, check = FORMATS[kind]
    (tmp_path / name).write_bytes(data)
    check(read(tmp_path / name))


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_mutated_file_gives_a_result_or_one_line(kind, data):
    read, valid, name, check = FORMATS[kind]
    mutated = data.draw(mutations(valid))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(mutated)
        message = None
        tracemalloc.start()
        try:
            check(read(path))
        except InputError as error:
            message = str(error)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert message is None or (name in message and "\n" not in message)
        assert peak < MAX_MEMORY
