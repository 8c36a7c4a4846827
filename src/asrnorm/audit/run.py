"""The audit itself: every part measured once, kept as it comes, and put together."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import asrnorm
from asrnorm.audit import attack, search
from asrnorm.audit.desk import Desk
from asrnorm.audit.ledger import Ledger
from asrnorm.audit.picture import Pictures
from asrnorm.audit.plan import Plan
from asrnorm.audit.result import Audit, ModelAudit, Reading
from asrnorm.audit.subject import Subject
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.progress import PartProgress
from asrnorm.core.settings import count_cores
from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.worker_pool import Order, hire_couriers

_CHUNK = 16  # images that a worker corrupts at a time


def run_audit(
    subjects: Sequence[Subject],
    pictures: Pictures,
    outputs: Sequence[Mapping[str, int]],
    plan: Plan,
    *,
    data: str = "images",
    ledger: Path | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> Audit:
    """Measure one model, or two on the same images.

    Args:
        subjects: models, probed.
        pictures: the images.
        outputs: of each model, the output of every class.
        plan: the extent.
        data: what the images are called.
        ledger: a file of results as they come; an audit started again takes up what is there.
        workers: processes that corrupt images; one a core where `None`.
        progress: show how far it is on standard error.

    Raises:
        InputError: two models have one name, or a model raises or returns what cannot be used.
        StorageError: the ledger cannot be written.
    """
    if len({subject.name for subject in subjects}) < len(subjects):
        raise InputError(f"two models are called {subjects[0].name!r}; give each a name of its own")
    started = time.monotonic()
    book = Ledger(ledger)
    usable, not_available = _available(plan.corruptions, pictures)
    total = sum(_count_passes(subject, len(pictures), len(usable), plan) for subject in subjects)
    with PartProgress(total, "passes", shown=progress) as bar:
        desks = [Desk(subject, pictures, own, plan, book, bar) for subject, own in zip(subjects, outputs, strict=True)]
        clean = [desk.look_at_clean() for desk in desks]
        corrupted = _measure_corruptions(desks, usable, plan, workers or count_cores())
        attacks = [attack.measure_attacks(desk) for desk in desks]
        found = search.measure_searches(desks)
    models = tuple(
        ModelAudit(
            name=desk.subject.name,
            kind=desk.subject.kind,
            fingerprint=desk.subject.fingerprint,
            num_classes=desk.subject.num_classes,
            classes={index: name for name, index in outputs[row].items()},
            num_parameters=desk.subject.num_parameters,
            input=f"{desk.subject.form.describe()}; {desk.subject.describe_answer()}",
            clean=clean[row],
            corruptions=corrupted[row],
            attacks=attacks[row],
            no_attacks=desk.subject.no_gradients,
            search=found[row],
        )
        for row, desk in enumerate(desks)
    )
    return Audit(
        data=data,
        num_images=len(pictures),
        num_found=pictures.num_found,
        skipped=pictures.skipped,
        size=(int(pictures.images.shape[1]), int(pictures.images.shape[2])),
        data_fingerprint=pictures.fingerprint,
        classes=pictures.classes,
        severities=plan.severities,
        seed=plan.seed,
        models=models,
        not_available=not_available,
        seconds=round(time.monotonic() - started, 1),
        version=asrnorm.__version__,
    )


def _measure_corruptions(
    desks: Sequence[Desk], names: Sequence[str], plan: Plan, workers: int
) -> list[dict[str, dict[int, Reading]]]:
    pictures = desks[0].pictures
    parts = {f"corruption/{name}/{level}": (name, level) for name in names for level in plan.severities}
    missing = [part for part in parts if not all(desk.knows(part) for desk in desks)]
    orders = (
        Order(pictures.images[start : start + _CHUNK], *parts[part], start, plan.seed)
        for part in missing
        for start in range(0, len(pictures), _CHUNK)
    )
    found: list[dict[str, dict[int, Reading]]] = [{name: {} for name in names} for _ in desks]
    with hire_couriers(workers if missing else 1) as deliver:
        delivered = deliver(orders)
        for part, (name, level) in parts.items():
            images = np.empty((0,))
            if part in missing:
                images = np.concatenate([next(delivered) for _ in range(0, len(pictures), _CHUNK)])
            for desk, own in zip(desks, found, strict=True):
                values = desk.recall(part, len(pictures), lambda d=desk, i=images: d.read(d.predict(i)))  # type: ignore[misc]
                own[name][level] = Reading(**values)
    return found


def _available(names: Sequence[str], pictures: Pictures) -> tuple[list[str], dict[str, str]]:
    """Part the corruptions into those that can be made here and those that cannot, with the reason."""
    usable, lacking = [], {}
    for name in names:
        try:
            corrupt(pictures.images[:1], name, severity=1)  # photographs or a library may be missing
            usable.append(name)
        except AsrnormError as error:
            lacking[name] = str(error)
    return usable, lacking


def _count_passes(subject: Subject, count: int, num_corruptions: int, plan: Plan) -> int:
    passes = count * (1 + num_corruptions * len(plan.severities))
    passes += sum(attack.count_passes(one, count) for one in plan.attacks) if subject.has_gradients else 0
    return passes + search.count_passes(plan, count)
