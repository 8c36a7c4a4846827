"""Layers as libraries that are not installed here define them."""

from torch import nn


def foreign(base, name, module):
    """A class as another library would define it."""
    return type(name, (base,), {"__module__": module})


class _BatchNormAct(nn.BatchNorm2d):
    def __init__(self, num_features, act=None):
        super().__init__(num_features)
        self.drop = nn.Identity()
        self.act = act or nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


BatchNormAct2d = foreign(_BatchNormAct, "BatchNormAct2d", "timm.layers.norm_act")
