"""Hugging Face Trainer: a ConvNeXt with converted norms, a method's loss, an evaluation on several domains.

python examples/with_transformers.py [FOLDER]   (needs: pip install "asrnorm[data]" transformers accelerate)
"""

import sys
from typing import Any

from torch import Tensor, nn
from torch.utils.data import default_collate
from transformers import ConvNextConfig, ConvNextForImageClassification, Trainer, TrainingArguments

import asrnorm


class MethodTrainer(Trainer):
    """A Trainer whose loss in training is that of a method."""

    method = asrnorm.create_method("rda", seed=0)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *args: Any, **options: Any) -> Any:
        """Return the loss of the method, in evaluation the network's own."""
        if not model.training:
            return super().compute_loss(model, inputs, *args, **options)
        batch = asrnorm.Batch(inputs["pixel_values"], inputs["labels"], self.state.global_step)
        return self.method.loss(lambda images: model(images).logits, batch)


def collate(items: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    images, labels = default_collate(items)
    return {"pixel_values": images, "labels": labels}


def main() -> None:
    suite = asrnorm.create_suite("digits_mini")
    config = ConvNextConfig(
        num_stages=2, depths=[1, 1], hidden_sizes=[16, 32], layer_scale_init_value=1.0, num_labels=len(suite.classes)
    )
    model = asrnorm.convert(ConvNextForImageClassification(config), "asr", kinds=("layer2d",))
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs/transformers"
    sizes = {"max_steps": 150, "per_device_train_batch_size": 32, "per_device_eval_batch_size": 500}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    domains = {"mnist": suite.source_test, **suite.targets}
    trainer = MethodTrainer(
        model,
        TrainingArguments(folder, learning_rate=8e-3, **sizes, **quiet),
        data_collator=collate,
        train_dataset=suite.train,
        eval_dataset=domains,
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(1) == found.label_ids).mean()},
    )
    trainer.train()
    scores = trainer.evaluate()
    print("accuracy: " + ", ".join(f"{name} {scores[f'eval_{name}_accuracy']:.0%}" for name in domains))


if __name__ == "__main__":
    main()
