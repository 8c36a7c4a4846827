"""Accuracy under attack."""

from collections.abc import Sequence

import torch

from asrnorm.data import FileSet, ImageSet
from asrnorm.errors import InputError
from asrnorm.evaluation.attack import ATTACKS, Attack
from asrnorm.evaluation.attacker import Attacker
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import check_labels
from asrnorm.evaluation.shard import iterate_batches
from asrnorm.methods import keyed_generator
from asrnorm.methods.mode import evaluating
from asrnorm.models import Classifier
from asrnorm.precision import Precision
from asrnorm.world import ALONE, World


def score_attacks(
    model: Classifier,
    data: ImageSet | FileSet,
    *,
    attacks: Sequence[Attack] = ATTACKS,
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
        model: a `Classifier` that takes float images in [0, 1].
        data: images and labels, as a rule the source's test images.
        attacks: which; by default FGSM and PGD with 10 steps at .5, 1, 2 and 8 levels, and ADA's ascent at two rates.
        name: of the domain, for error lines.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        seed: of the random starts.
        world: the processes that share the work; all of them must call this.

    Raises:
        InputError: no images, or labels that the model does not know.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    if len(data) == 0:
        raise InputError(f"domain {name!r} has no images to score")
    check_labels(data.labels, model.num_classes, name)
    num_right = torch.zeros(len(attacks), dtype=torch.int64, device=inference.device)
    with evaluating(model):
        attacker = Attacker(model, inference)
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
