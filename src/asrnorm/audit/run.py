"""Run an audit: clean images, corruptions, attacks, and the search for the worst transformations."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import asrnorm
from asrnorm.audit.images import LabeledImages
from asrnorm.audit.model import AuditedModel, AuditedModule
from asrnorm.audit.paired import pack
from asrnorm.audit.result import Audit, ModelAudit, Plan, Scores, Search
from asrnorm.audit.session import Images, ModelSession, ResultCache, to_nchw, to_nhwc, to_unit
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.progress import PartProgress
from asrnorm.core.settings import count_cores
from asrnorm.data.augment import RSDA_OPERATIONS, apply_named, apply_tuple
from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.tensors import TENSOR_CORRUPTIONS
from asrnorm.data.corruptions.worker_pool import corrupt_chunks, worker_pool
from asrnorm.evaluation import SignedSteps
from asrnorm.methods import keyed_generator
from asrnorm.methods.rsda import RSDA

_CHUNK = 16  # images that a worker corrupts at a time
_BACKWARD = 2  # a backward pass costs two forward passes

Operations = Sequence[tuple[str, float]]


def run_audit(
    models: Sequence[AuditedModel],
    images: LabeledImages,
    outputs: Sequence[Mapping[str, int]],
    plan: Plan,
    *,
    data: str = "images",
    cache: Path | None = None,
    workers: int | None = None,
    tensors: bool | None = None,
    progress: bool = True,
) -> Audit:
    """Measure one model, or two on the same images; they must be probed.

    `outputs` has for each model the output of every class, and `data` names the images. An audit that is started
    again reuses the results in the file `cache`. Images are corrupted by `workers` processes (one per core if `None`),
    or with `tensors`, by default on a GPU, on the models' device. There random corruptions have other random numbers,
    and the cache keeps both apart.
    """
    if len({model.name for model in models}) < len(models):
        raise InputError(f"two models are called {models[0].name!r}; give each a name of its own")
    started = time.monotonic()
    results = ResultCache(cache)
    device = next((model.device for model in models if model.device.type != "cpu"), torch.device("cpu"))
    tensors = device.type != "cpu" if tensors is None else tensors
    names, not_available = _find_available(plan.corruptions, images)
    total = sum(_count_passes(model, len(images), len(names), plan) for model in models)
    with PartProgress(total, "passes", shown=progress) as bar:
        sessions = [
            ModelSession(model, images, own, plan, results, bar) for model, own in zip(models, outputs, strict=True)
        ]
        clean = [session.score_clean() for session in sessions]
        corruptions = _score_corruptions(sessions, names, workers or count_cores(), device if tensors else None)
        attacks = [_score_attacks(session) for session in sessions]
        searches = _search_tuples(sessions)
    found = tuple(
        ModelAudit(
            name=model.name,
            kind=model.kind,
            fingerprint=model.fingerprint,
            num_classes=model.num_classes,
            classes={index: name for name, index in outputs[row].items()},
            num_parameters=model.num_parameters,
            input=model.describe_input(),
            clean=clean[row],
            corruptions=corruptions[row],
            attacks={name: int(right, 16).bit_count() / len(images) for name, right in attacks[row].items()},
            right_under_attack=attacks[row],
            no_attacks=model.no_gradients,
            search=searches[row],
        )
        for row, model in enumerate(models)
    )
    return Audit(
        data=data,
        num_images=len(images),
        num_found=images.num_found,
        skipped=images.skipped,
        size=(int(images.images.shape[1]), int(images.images.shape[2])),
        data_fingerprint=images.fingerprint,
        classes=images.classes,
        severities=plan.severities,
        seed=plan.seed,
        models=found,
        not_available=not_available,
        seconds=round(time.monotonic() - started, 1),
        version=asrnorm.__version__,
        tensors=tensors,
    )


def _find_available(names: Sequence[str], images: LabeledImages) -> tuple[list[str], dict[str, str]]:
    """Return the corruptions that can be applied here, and the reason for each one that cannot."""
    available, missing = [], {}
    for name in names:
        try:
            corrupt(images.images[:1], name, severity=1)  # photographs or a library may be missing
            available.append(name)
        except AsrnormError as error:
            missing[name] = str(error)
    return available, missing


def _count_passes(model: AuditedModel, count: int, num_corruptions: int, plan: Plan) -> int:
    """Return the forward passes of all parts, for the progress bar."""
    corruptions = count * (1 + num_corruptions * len(plan.severities))
    attacks = sum(_count_attack_passes(attack, count) for attack in plan.attacks) if model.has_gradients else 0
    return corruptions + attacks + plan.candidates * min(plan.search_images, count) + count


def _count_attack_passes(attack: SignedSteps, count: int) -> int:
    """Return the passes of an attack: the clean image, every step, the result and its prediction."""
    return count * (3 + attack.steps * (1 + _BACKWARD))


class _Corrupted:
    """Images under a corruption, computed on a device as they are read."""

    def __init__(self, images_nhwc: NDArray[np.uint8], name: str, level: int, seed: int, device: torch.device) -> None:
        self.images_nhwc, self.name, self.level, self.seed, self.device = images_nhwc, name, level, seed, device

    def __len__(self) -> int:
        return len(self.images_nhwc)

    def __getitem__(self, part: slice) -> Tensor:
        images = torch.from_numpy(self.images_nhwc[part]).to(self.device).permute(0, 3, 1, 2).contiguous()
        indices = torch.arange(*part.indices(len(self)), device=self.device)
        return corrupt(images, self.name, severity=self.level, seed=self.seed, indices=indices)


def _score_corruptions(
    sessions: Sequence[ModelSession], names: Sequence[str], workers: int, device: torch.device | None
) -> list[dict[str, dict[int, Scores]]]:
    """Return the scores of every model by corruption and severity.

    The device corrupts what has a form for tensors, worker processes the rest; without a device, they corrupt all.
    """
    images, plan = sessions[0].images, sessions[0].plan
    on_device = set(names) & set(TENSOR_CORRUPTIONS) if device is not None else set()
    kinds = {name: "tensors" if name in on_device else "corruption" for name in names}
    parts = {f"{kinds[name]}/{name}/{level}": (name, level) for name in names for level in plan.severities}
    missing = [part for part in parts if not all(session.has(part) for session in sessions)]
    by_workers = [part for part in missing if parts[part][0] not in on_device]
    calls = (corrupt_chunks(images.images, _CHUNK, *parts[part], seed=plan.seed) for part in by_workers)
    found: list[dict[str, dict[int, Scores]]] = [{name: {} for name in names} for _ in sessions]
    with worker_pool(workers if by_workers else 1) as run:
        done = run(chain.from_iterable(calls))
        for part, (name, level) in parts.items():
            corrupted: Images = images.images[:0]
            if part in by_workers:
                corrupted = np.concatenate([next(done) for _ in range(0, len(images), _CHUNK)])
            elif part in missing:
                corrupted = _Corrupted(images.images, name, level, plan.seed, device)  # type: ignore[arg-type]
            for session, own in zip(sessions, found, strict=True):
                own[name][level] = session.score(part, lambda corrupted=corrupted: corrupted)  # type: ignore[misc]
    return found


def _score_attacks(session: ModelSession) -> dict[str, str]:
    """Return which images are right under each attack of the plan, or nothing if the model has no gradients."""
    model = session.model
    if not model.has_gradients or not isinstance(model, AuditedModule):
        return {}

    def score(attack: SignedSteps) -> str:
        right = []
        for start in range(0, len(session.images), session.batch):
            images = to_unit(session.images.images[start : start + session.batch]).to(model.device)
            labels = session.labels[start : start + session.batch]
            generator = keyed_generator(session.plan.seed, start, attack.name, device=model.device)
            attacked = attack.apply(model.module, images, labels.to(model.device), generator)  # type: ignore[arg-type]
            right.append(model.predict(attacked.detach()).argmax(1) == labels)
        return pack(torch.cat(right))

    found = {}
    for attack in session.plan.attacks:
        passes = _count_attack_passes(attack, len(session.images))
        found[attack.name] = session.recall(f"attack/{attack.name}", passes, partial(score, attack))
    return found


def _search_tuples(sessions: Sequence[ModelSession]) -> list[Search]:
    """Return the worst tuple of transformations for each model, with the accuracy of every model under it."""
    searches = []
    for own in sessions:
        operations, wrong, count = _search(own)
        change = partial(apply_operations, own.images.images, operations)
        scores = {session.model.name: session.score(f"tuple/{_join(operations)}", change) for session in sessions}
        numbers = {"candidates": own.plan.candidates, "num_images": count, "wrong": wrong}
        accuracy = {name: one.accuracy for name, one in scores.items()}
        searches.append(Search(operations=operations, scores=scores[own.model.name], accuracy=accuracy, **numbers))
    return searches


def _search(session: ModelSession) -> tuple[list[tuple[str, float]], int, int]:
    """Run RSDA's random search against a model; return the worst tuple, its mistakes, and the number of images."""
    plan = session.plan
    count = min(plan.search_images, len(session.images))
    rows = np.arange(count) * len(session.images) // count
    images, labels = to_nchw(session.images.images[rows]).to(session.model.device), session.labels[rows]
    method = RSDA(candidates=plan.candidates, search_images=count)
    method.seed = plan.seed

    def judge(op: Tensor, level: Tensor) -> int:
        return int((session.predict(apply_tuple(images, op, level)).argmax(1) != labels).sum())

    def count_wrong(ops: Tensor, levels: Tensor) -> Tensor:
        wrong = []
        for pair in zip(ops, levels, strict=True):
            part = f"search/{count}/{_join(_name_operations(*pair))}"
            wrong.append(session.recall(part, count, partial(judge, *pair)))
        return torch.tensor(wrong)

    worst = method.search(count_wrong, 0)
    return _name_operations(worst.ops, worst.levels), worst.wrong, count


def apply_operations(images: NDArray[np.uint8], operations: Operations) -> NDArray[np.uint8]:
    """Return uint8 images `(n, h, w, 3)` under named operations, one after the other."""
    return to_nhwc(apply_named(to_nchw(images), operations))


def _name_operations(ops: Tensor, levels: Tensor) -> list[tuple[str, float]]:
    pairs = [(RSDA_OPERATIONS[op], level) for op, level in zip(ops.tolist(), levels.tolist(), strict=True)]
    return [(operation.name, float(operation.levels[level])) for operation, level in pairs]


def _join(operations: Operations) -> str:
    return "+".join(f"{name}={level:g}" for name, level in operations)
