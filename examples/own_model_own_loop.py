"""Convert the norms of your own network, and compute the loss of your own loop by a method of this package.

python examples/own_model_own_loop.py
"""

import torch
from torch import Tensor, nn

import asrnorm


class SmallNet(nn.Module):
    """A network in the three parts that methods call: RSC masks `features`, ADA measures distances in `embed`."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(32, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the last spatial map."""
        return self.body(x)

    def embed(self, maps: Tensor) -> Tensor:
        """Return the vector before the classifier."""
        return maps.mean((2, 3))

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(embedding)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        return self.classify(self.embed(self.features(x)))


def main() -> None:
    torch.manual_seed(0)
    labels = torch.arange(256) % 3
    images = torch.rand(256, 3, 32, 32) / 2
    images[torch.arange(256), labels] += 0.4  # class 0 is reddish, 1 greenish, 2 bluish
    model = asrnorm.convert(SmallNet(3), "asr")
    method = asrnorm.create_method("rsc")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(80):
        rows = torch.randint(256, (32,))
        loss = method.loss(model, (images[rows], labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = (model.eval()(images).argmax(1) == labels).float().mean()
    print(f"loss {loss:.3f}, accuracy {accuracy:.0%}")


if __name__ == "__main__":
    main()
