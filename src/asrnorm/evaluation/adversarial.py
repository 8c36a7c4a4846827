"""Accuracy under attack."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from asrnorm.data import FileSet, ImageSet
from asrnorm.errors import InputError
from asrnorm.evaluation.attack import ATTACKS, Attack, SemanticAscent
from asrnorm.evaluation.attacker import Attacker
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import check_labels
from asrnorm.evaluation.shard import iterate_batches, thin
from asrnorm.methods import keyed_generator
from asrnorm.methods.mode import evaluating
from asrnorm.models.base import PARTS, Classifier
from asrnorm.precision import Precision
from asrnorm.world import ALONE, World


def score_attacks(
    model: nn.Module,
    data: ImageSet | FileSet,
    *,
    attacks: Sequence[Attack] | None = None,
    name: str = "source",
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    seed: int = 0,
    world: World = ALONE,
) -> dict[str, float]:
    """Return the accuracy of a model on a domain under each attack, by the attack's name.

    The model is attacked in evaluation mode and left as it was. The number of processes does not change the result;
    random starts are drawn a batch at a time, so there the batch size does.

    Args:
        model: takes float images in [0, 1], returns logits.
        data: images and labels, as a rule the source's test images.
        attacks: which; by default FGSM and PGD with 10 steps at .5, 1, 2 and 8 levels, and, of a model with the parts
            that it measures a distance in, ADA's ascent at two rates.
        name: of the domain, for error lines.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        seed: of the random starts.
        world: the processes that share the work; all of them must call this.

    Raises:
        InputError: no images, labels that the model does not know, or an ascent in a model without those parts.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    if len(data) == 0:
        raise InputError(f"domain {name!r} has no images to score")
    attacks = _choose(attacks, model)
    num_right = torch.zeros(len(attacks), dtype=torch.int64, device=inference.device)
    with evaluating(model):
        check_labels(data.labels, _count_classes(inference, data), name)
        attacker = Attacker(cast(Classifier, model), inference)  # attacks that need its parts were chosen by them
        for batch, images, labels in iterate_batches(data, batch_size, world):
            images_nchw = inference.to_input(images)
            labels_n = torch.from_numpy(labels.copy()).to(inference.device)
            for row, attack in enumerate(attacks):
                generator = keyed_generator(seed, batch, attack.name, device=inference.device)
                with inference.autocast():
                    attacked = attacker.apply(attack, images_nchw, labels_n, generator)
                with torch.inference_mode():
                    guess_n = inference.logits(attacked).argmax(1)
                num_right[row] += (guess_n == labels_n).sum()
    counts = world.sum(num_right).tolist()
    return {attack.name: count / len(data) for attack, count in zip(attacks, counts, strict=True)}


def _choose(attacks: Sequence[Attack] | None, model: nn.Module) -> Sequence[Attack]:
    lacking = [part for part in PARTS if not hasattr(model, part)]
    if attacks is None:
        return [attack for attack in ATTACKS if not (lacking and isinstance(attack, SemanticAscent))]
    if lacking and (ascents := [attack.name for attack in attacks if isinstance(attack, SemanticAscent)]):
        raise InputError(
            f"attack {ascents[0]!r} looks inside the network, and {type(model).__name__} has no {', '.join(lacking)}; "
            "leave it out, or derive the network from asrnorm.models.Classifier"
        )
    return attacks


def _count_classes(inference: Inference, data: ImageSet | FileSet) -> int:
    _, images, _ = next(iter(iterate_batches(thin(data, 2), 2)))  # `bn_test` has no statistics of one
    with torch.inference_mode():
        return int(inference.logits(inference.to_input(images)).shape[-1])
