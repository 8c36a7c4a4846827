"""Replace the norms of your own network, fine-tune it, and put the old norms back.

python examples/convert_a_network.py
"""

import torch
import torch.nn.functional as F

import asrnorm


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(8, 3, 64, 64), torch.arange(8) % 4

    # Use your own network here. Conversion keeps trained gains and biases but changes the outputs.
    model = asrnorm.create_model("resnet18", num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    before = model.eval()(images)

    # "early", the first half of the stages, is the default for a trained network; this one is untrained, so name it.
    # `optimizer=` makes the optimizer train the new parameters.
    asrnorm.convert(model, "asr", layers="early", optimizer=optimizer)
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
    # Only the norms return to their old state; the other weights stay as trained.
    print(f"the logits moved by up to {changed:.2f}; reverted, the norms are {', '.join(sorted(norms))} again")


if __name__ == "__main__":
    main()
