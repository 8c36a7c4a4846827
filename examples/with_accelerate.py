"""Accelerate: a loop for one process or many, with a converted network and a method's loss.

accelerate launch examples/with_accelerate.py   (needs: pip install "asrnorm[data]" accelerate)
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

import asrnorm

STEPS = 40


def main() -> None:
    accelerator = Accelerator()
    set_seed(0)
    suite = asrnorm.create_suite("digits_mini")
    model = asrnorm.create_model("digits_convnet", norm="bn", num_classes=10, channels=(8, 16), hidden=32)
    asrnorm.convert(model, "asr")  # before `prepare`, which wraps the network
    method = asrnorm.create_method("rda", seed=accelerator.process_index)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train = DataLoader(suite.train, batch_size=32, shuffle=True)
    model, optimizer, train = accelerator.prepare(model, optimizer, train)

    for step, (images, labels) in zip(range(STEPS), train, strict=False):
        loss = method.loss(model, asrnorm.Batch(images, labels, step))
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

    model.eval()
    for name, images in {"mnist": suite.source_test, **suite.targets}.items():
        loader = accelerator.prepare(DataLoader(images, batch_size=500))
        correct = total = 0
        for batch, labels in loader:
            with torch.no_grad():
                predictions = model(batch).argmax(1)
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))
            correct, total = correct + int((predictions == labels).sum()), total + len(labels)
        accelerator.print(f"{name}: accuracy {correct / total:.0%}")


if __name__ == "__main__":
    main()
