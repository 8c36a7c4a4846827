import dataclasses
import errno
import hashlib
import io
import pickle
import random
from importlib import import_module

import numpy as np
import pytest
import torch

from asrnorm.core import files as storage
from asrnorm.core.config import OptimConfig, to_mapping
from asrnorm.core.errors import InputError, StorageError
from asrnorm.core.results import read_result
from asrnorm.data import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.training import run
from asrnorm.training.checkpoint import SCHEMA, CheckpointStore, DamagedError, pack, unpack
from helpers.tiny_run import Choice, model_bytes, tiny_config


@pytest.fixture
def pool():
    return Pool(ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)))


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def open_store(tmp_path, **changes):
    return CheckpointStore(tmp_path / "checkpoints", tmp_path / "pool", tiny_config(**changes))


def state(step):
    return {"step": step, "model": {"weight": torch.full((50,), float(step))}}


def grow(pool, value):
    pool.append(torch.full((2, 3, 8, 8), value), torch.tensor([1, 2]))


def test_what_was_saved_comes_back(tmp_path, store, pool):
    assert store.load() is None
    grow(pool, 0.5)
    store.save(state(3), pool)
    loaded = open_store(tmp_path).load()
    assert loaded.name == "last.pt"
    assert torch.equal(loaded.state["model"]["weight"], torch.full((50,), 3.0))
    assert torch.equal(loaded.parts[0][0], pool.parts[0][0])
    assert loaded.parts[0][1].tolist() == [1, 2]


def test_the_last_two_are_kept_and_a_part_is_written_once(tmp_path, store, pool):
    for step in range(4):
        if step in (1, 3):
            grow(pool, step / 10)
        store.save(state(step), pool)
    assert [unpack(tmp_path / "checkpoints" / name)["step"] for name in ("last.pt", "previous.pt")] == [3, 2]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["last.pt", "previous.pt"]
    assert len(list((tmp_path / "pool").iterdir())) == 2


def test_any_flipped_bit_is_noticed(tmp_path, store, pool):
    store.save(state(1), pool)
    path = tmp_path / "checkpoints" / "last.pt"
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"last\.pt: damaged"):
            unpack(path)
    for length in (0, 10, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError):
            unpack(path)


def test_a_damaged_last_falls_back_to_the_previous_and_never_overwrites_it(tmp_path, store, pool, caplog):
    store.save(state(1), pool)
    store.save(state(2), pool)
    last = tmp_path / "checkpoints" / "last.pt"
    last.write_bytes(last.read_bytes()[:-100])
    again = open_store(tmp_path)
    loaded = again.load()
    assert (loaded.name, loaded.state["step"]) == ("previous.pt", 1)
    assert "last.pt: damaged" in caplog.text
    again.save(state(2), pool)
    assert [unpack(tmp_path / "checkpoints" / name)["step"] for name in ("last.pt", "previous.pt")] == [2, 1]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path, store, pool):
    store.save(state(1), pool)
    (tmp_path / "checkpoints" / "last.pt").rename(tmp_path / "checkpoints" / "previous.pt")
    assert open_store(tmp_path).load().state["step"] == 1


def test_two_damaged_checkpoints_are_one_line_that_names_the_way_out(tmp_path, store, pool):
    store.save(state(1), pool)
    (tmp_path / "checkpoints" / "last.pt").write_bytes(b"rubbish")
    with pytest.raises(InputError, match=r"last\.pt: damaged.*--fresh"):
        open_store(tmp_path).load()


def test_a_damaged_part_falls_back_to_a_checkpoint_that_does_not_need_it(tmp_path, store, pool):
    store.save(state(1), pool)
    grow(pool, 0.5)
    store.save(state(2), pool)
    (part,) = (tmp_path / "pool").iterdir()
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    again = open_store(tmp_path)
    assert again.load().state["step"] == 1
    fresh = Pool(ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)))
    grow(fresh, 0.5)
    again.save(state(2), fresh)
    assert open_store(tmp_path).load().state["step"] == 2, "the part is written anew"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"optim": OptimConfig(lr=0.3)}, r"optim\.lr"),
        ({"norm": Choice(name="asr")}, r"norm\.name"),
        ({"suite": Choice(name="toy", args={"count": 5})}, r"suite\.args\.count"),
        ({"steps": 31}, "steps"),
    ],
)
def test_a_checkpoint_of_another_config_is_refused_by_the_field_that_differs(tmp_path, store, pool, changes, field):
    store.save(state(1), pool)
    optim = changes.get("optim")
    if optim is not None:
        changes = {"optim": dataclasses.replace(tiny_config().optim, lr=0.3)}
    with pytest.raises(InputError, match=f"{field}: .* here, .* there"):
        open_store(tmp_path, **changes).load()


def test_fields_that_change_no_number_may_differ(tmp_path, store, pool):
    store.save(state(1), pool)
    changed = open_store(tmp_path, log_every=9, checkpoint_every=3, device="auto")
    assert changed.load().state["step"] == 1


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_hostile_checkpoint_with_a_fitting_checksum_does_not_run(tmp_path, store, pool):
    store.save(state(1), pool)
    store.save(state(2), pool)
    trap = tmp_path / "trap"
    whole = {"schema": SCHEMA, "config": to_mapping(tiny_config()), "parts": [], "step": 9, "model": Hostile(trap)}
    for payload in (zipped(whole), pickle.dumps(whole, protocol=2)):
        (tmp_path / "checkpoints" / "last.pt").write_bytes(payload + hashlib.sha256(payload).hexdigest().encode())
        assert open_store(tmp_path).load().state["step"] == 1
        assert not trap.exists()


def zipped(values):
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def test_torch_opens_the_files_as_they_are(tmp_path, store, pool):
    store.save(state(7), pool)
    assert torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)["step"] == 7


def test_a_file_of_another_schema_is_not_taken_for_a_checkpoint(tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(pack({"schema": 99}))
    with pytest.raises(DamagedError, match="schema 1"):
        unpack(path)


def test_a_full_disk_leaves_the_checkpoints_as_they_were(tmp_path, store, pool):
    import resource

    store.save(state(1), pool)
    before = (tmp_path / "checkpoints" / "last.pt").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match=r"last\.pt: the disk is full"):
            store.save(state(2), pool)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["last.pt"]
    assert (tmp_path / "checkpoints" / "last.pt").read_bytes() == before
    store.save(state(2), pool)
    assert open_store(tmp_path).load().state["step"] == 2


def test_a_checkpoint_that_does_not_reach_the_disk_takes_no_name_from_the_others(tmp_path, store, pool, monkeypatch):
    for step in (1, 2):
        store.save(state(step), pool)
    folder = tmp_path / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.raises(StorageError, match=r"last\.pt: the disk is full; free some space and start again"):
            store.save(state(3), pool)
    assert sorted(before) == ["last.pt", "previous.pt"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    store.save(state(3), pool)
    assert open_store(tmp_path).load().state["step"] == 3


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.zeros(3), "numpy.ndarray"), (np.float64(1), "numpy.float64"), (random.Random(), "random.Random")],
)
def test_a_state_that_could_not_be_read_again_is_refused_when_it_is_written(tmp_path, store, pool, value, kind):
    store.save(state(1), pool)
    with pytest.raises(InputError, match=rf"{kind} at method\.seen\[1\]"):
        store.save({**state(2), "method": {"seen": [1, value]}}, pool)
    assert open_store(tmp_path).load().state["step"] == 1


def test_what_can_be_read_again_is_written(tmp_path, store, pool):
    kept = {"shape": torch.Size([2]), "pair": (1, None), "name": "x", "flag": True, "bits": torch.tensor([True])}
    store.save({**state(1), "method": kept}, pool)
    assert open_store(tmp_path).load().state["method"]["shape"] == torch.Size([2])


@pytest.mark.parametrize(
    "change", [{"config": None}, {"parts": None}, {"parts": 3}, {"step": "9"}, {"step": None}], ids=str
)
def test_a_checkpoint_that_lacks_a_part_falls_back_to_the_previous(tmp_path, store, pool, change):
    store.save(state(1), pool)
    store.save(state(2), pool)
    whole = {"schema": SCHEMA, "config": to_mapping(tiny_config()), "parts": [], **state(9), **change}
    (tmp_path / "checkpoints" / "last.pt").write_bytes(pack({k: v for k, v in whole.items() if v is not None}))
    assert open_store(tmp_path).load().state["step"] == 1


@pytest.mark.parametrize("payload", [b".", b"\x85.", b"", b"PK\x03\x04"])
def test_bytes_that_no_reader_takes_are_damage(tmp_path, payload):
    path = tmp_path / "last.pt"
    path.write_bytes(payload + hashlib.sha256(payload).hexdigest().encode())
    with pytest.raises(DamagedError, match="damaged"):
        unpack(path)


run_module = import_module("asrnorm.training.run")  # the package has a function of that name


def stop(*_):
    raise KeyboardInterrupt


def test_grown_images_are_removed_once_the_result_is_there(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    seen = []
    write = run_module.write_run_file

    def watched(path, data):
        if path.name == "result.json":
            seen.extend((tmp_path / "a" / "pool").iterdir())
        write(path, data)

    monkeypatch.setattr(run_module, "write_run_file", watched)
    run(config, tmp_path / "a")
    assert len(seen) == 2
    assert not (tmp_path / "a" / "pool").exists()
    assert {path.name for path in (tmp_path / "a" / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}


def test_a_kill_before_the_result_leaves_the_grown_images_to_go_on_from(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    whole, write = run(config, tmp_path / "whole"), run_module.write_run_file
    with monkeypatch.context() as patch:
        patch.setattr(
            run_module, "write_run_file", lambda path, data: stop() if path.name == "result.json" else write(path, data)
        )
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "a")
    assert len(list((tmp_path / "a" / "pool").iterdir())) == 2
    again = run(config, tmp_path / "a")
    assert (again.domains, model_bytes(tmp_path / "a")) == (whole.domains, model_bytes(tmp_path / "whole"))


def test_a_kill_between_the_result_and_the_removal_leaves_a_run_that_is_done(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "drop_pool", stop)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "a")
    next((tmp_path / "a" / "pool").iterdir()).unlink()  # some are gone already
    monkeypatch.setattr(run_module, "_execute", None)  # what is done is not done again
    assert run(config, tmp_path / "a") == read_result(tmp_path / "a" / "result.json")
    assert not (tmp_path / "a" / "pool").exists()


def test_a_first_pass_that_has_chosen_keeps_no_grown_images(tmp_path):
    suite = Choice(name="toy", args={"validation": False})
    config = tiny_config(method=Choice(name="toy_grow"), suite=suite, selection="source-val", evaluate_every=10)
    run(config, tmp_path / "a")
    assert (tmp_path / "a" / "choice" / "choice.json").is_file()
    assert not (tmp_path / "a" / "choice" / "pool").exists()


def forge(folder, change):
    """Write a checkpoint with a valid checksum and another state."""
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "previous.pt").unlink()
    path = folder / "checkpoints" / "last.pt"
    state = unpack(path)
    change(state)
    path.write_bytes(pack(state))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("model"),
        lambda state: state.pop("loss_sum"),
        lambda state: state.update(optimizer={}),
        lambda state: state.update(elapsed="x"),
        lambda state: state.update(elapsed=float("inf")),
        lambda state: state.update(step=-1),
        lambda state: state.update(step=10**9),
        lambda state: state.update(num_losses=None),
        lambda state: state.update(parts=[{"name": "/dev/zero", "sha256": ""}], step=4),
        lambda state: state.update(parts=[{"name": "../model.safetensors", "sha256": ""}], step=4),
        lambda state: state.update(parts=["x"], step=4),
        lambda state: state.update(parts=[{"sha256": ""}]),
        lambda state: state["config"].update(steps="x"),
    ],
)
def test_a_forged_checkpoint_is_one_line(tmp_path, change):
    config = tiny_config(steps=6)
    run(config, tmp_path / "a")
    forge(tmp_path / "a", change)
    with pytest.raises(InputError):
        run(config, tmp_path / "a")
