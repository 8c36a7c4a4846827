"""timm: convert any of its convolutional networks, train it by a method, and score it on several domains.

python examples/with_timm.py   (needs: pip install "asrnorm[data,vision]")
"""

import timm
import torch
from torch.utils.data import DataLoader

import asrnorm
from asrnorm.evaluation import score_domains


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    suite = asrnorm.create_suite("digits_mini")
    # `pretrained=True` loads ImageNet's weights; then `convert` takes the early layers and keeps their gains.
    model = timm.create_model("resnet10t", pretrained=False, num_classes=len(suite.classes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    asrnorm.convert(model, "asr", layers="early", optimizer=optimizer)
    print(str(asrnorm.conversion_summary(model)).splitlines()[0])

    method = asrnorm.create_method("rda", seed=0)
    loader = DataLoader(suite.train, batch_size=32, shuffle=True)
    for step, (images, labels) in zip(range(20), loader, strict=False):
        loss = method.loss(model, asrnorm.Batch(images.to(device), labels.to(device), step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for domain in score_domains(model, {"mnist": suite.source_test, **suite.targets}, limit=200):
        print(f"{domain.name}: accuracy {domain.accuracy:.0%}, ECE {domain.ece:.2f}")


if __name__ == "__main__":
    main()
