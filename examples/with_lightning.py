"""Lightning: a converted network, a method's loss, and a validation on several domains.

python examples/with_lightning.py   (needs: pip install "asrnorm[data]" lightning)
"""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import asrnorm


class Classifier(lightning.LightningModule):
    """Trains by a method and reports the accuracy on every domain."""

    def __init__(self, model: nn.Module, method: str, domains: list[str]) -> None:
        super().__init__()
        self.model, self.domains = model, domains
        self.method = asrnorm.create_method(method, seed=0)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of the method; the step keys its random numbers."""
        images, labels = batch
        return self.method.loss(self.model, asrnorm.Batch(images, labels, self.global_step))

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int, dataloader_idx: int = 0) -> None:
        """Log the accuracy under the name of the domain."""
        images, labels = batch
        accuracy = (self.model(images).argmax(1) == labels).float().mean()
        self.log(self.domains[dataloader_idx], accuracy, batch_size=len(labels), add_dataloader_idx=False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    suite = asrnorm.create_suite("digits_mini")
    domains = {"mnist": suite.source_test, **suite.targets}
    model = asrnorm.create_model("digits_convnet", norm="bn", num_classes=10, channels=(8, 16), hidden=32)
    module = Classifier(asrnorm.convert(model, "asr"), "rda", list(domains))
    trainer = lightning.Trainer(
        max_steps=40, devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    loaders = [DataLoader(images, batch_size=500) for images in domains.values()]
    trainer.fit(module, DataLoader(suite.train, batch_size=32, shuffle=True))
    trainer.validate(module, loaders, verbose=False)
    scores = trainer.callback_metrics
    print("accuracy: " + ", ".join(f"{name} {float(scores[name]):.0%}" for name in domains))


if __name__ == "__main__":
    main()
