"""Small things to audit: folders of colored images, and a network that tells their colors apart."""

import numpy as np
import torch
from PIL import Image
from torch import nn

COLORS = {"blue": (30, 40, 200), "green": (40, 190, 50), "red": (210, 40, 30)}


def make_folder(path, per_class=4, side=32, classes=tuple(COLORS)):
    """Write `<class>/<number>.png`: its color with some texture."""
    rng = np.random.default_rng(0)
    for name in classes:
        (path / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = rng.integers(-25, 26, (side, side, 3)) + np.array(COLORS[name])
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path / name / f"{number}.png")
    return path


class ColorNet(nn.Module):
    """Logits from the mean color: right on every clean image, wrong once colors are shifted."""

    def __init__(self, sharpness=8.0):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.fc.weight.data = sharpness * torch.tensor([[-1.0, -1, 2], [-1, 2, -1], [2, -1, -1]])
        self.fc.bias.data = torch.zeros(3)

    def forward(self, images):
        return self.fc(images.mean((2, 3)))


MODULE = """
import torch
from torch import nn
from helpers.audited import ColorNet

def net():
    return ColorNet()

def random_net():
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))

def four():
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))

class Broken(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
    def forward(self, x):
        if self.kind == "raises":
            raise RuntimeError("no such layer\\nsecond line")
        if self.kind == "nan":
            return torch.full((len(x), 3), float("nan"))
        if self.kind == "text":
            return "dog"
        return x

def raises(): return Broken("raises")
def nan(): return Broken("nan")
def text(): return Broken("text")
def image(): return Broken("image")
def fails(): raise KeyError("weights")
def number(): return 7
"""
