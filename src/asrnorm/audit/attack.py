"""Accuracy under attack, where the model gives gradients."""

from asrnorm.audit.desk import Desk, to_unit
from asrnorm.audit.subject import ModuleSubject
from asrnorm.evaluation import SignedSteps
from asrnorm.methods import keyed_generator

_BACKWARD = 2  # passes that the way back costs


def measure_attacks(desk: Desk) -> dict[str, float]:
    """Return the accuracy under each attack of the plan; nothing where the model has no gradients."""
    if not desk.subject.has_gradients or not isinstance(desk.subject, ModuleSubject):
        return {}
    return {
        attack.name: desk.recall(
            f"attack/{attack.name}",
            count_passes(attack, len(desk.pictures)),
            lambda one=attack: _attack(desk, one),  # type: ignore[misc]
        )
        for attack in desk.plan.attacks
    }


def count_passes(attack: SignedSteps, count: int) -> int:
    """Return the passes of an attack: the image as given, every step there and back, the end, and its verdict.

    Example:
        >>> count_passes(SignedSteps(8, 10), count=1)
        33
    """
    return count * (3 + attack.steps * (1 + _BACKWARD))


def _attack(desk: Desk, attack: SignedSteps) -> float:
    subject = desk.subject
    assert isinstance(subject, ModuleSubject)
    num_right = 0
    for start in range(0, len(desk.pictures), desk.batch):
        images = to_unit(desk.pictures.images[start : start + desk.batch]).to(subject.device)
        labels = desk.labels[start : start + desk.batch]
        generator = keyed_generator(desk.plan.seed, start, attack.name, device=subject.device)
        attacked = attack.apply(subject.module, images, labels.to(subject.device), generator)  # type: ignore[arg-type]
        num_right += int((subject.predict(attacked.detach()).argmax(1) == labels).sum())
    return num_right / len(desk.pictures)
