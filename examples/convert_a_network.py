"""Exchange the norms of a network you have, fine-tune it, and take the exchange back.

python examples/convert_a_network.py
"""

import torch
import torch.nn.functional as F

import asrnorm


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(8, 3, 64, 64), torch.arange(8) % 4

    # Stands for a network of your own, torchvision's or timm's; its trained gains and biases are kept.
    model = asrnorm.create_model("resnet18", num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    before = model.eval()(images)

    # The 12 places in which ASR-Norm serves a pretrained ResNet-18; the optimizer learns of the new parameters.
    asrnorm.convert(model, "asr", layers="resnet-12", optimizer=optimizer)
    print(asrnorm.conversion_summary(model))

    model.train()
    for step in range(5):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss:.3f}")

    changed = (model.eval()(images) - before).abs().max()
    asrnorm.revert(model)
    norms = {type(module).__name__ for module in model.modules() if "Norm" in type(module).__name__}
    print(f"the logits moved by up to {changed:.2f}; reverted, the norms are {', '.join(sorted(norms))} again")


if __name__ == "__main__":
    main()
