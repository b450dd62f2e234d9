"""The networks of training_networks.py in PyTorch, and in what they differ. Only torch_worker.py imports this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Model = tuple[nn.Module, torch.optim.Optimizer]


def mlp() -> Model:
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, torch.optim.Adam(model.parameters(), 1e-3)


def convolution() -> Model:
    first = nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.BatchNorm2d(20)
    second = nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2, 2)
    model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 10))
    return model, torch.optim.SGD(model.parameters(), 1e-2, 0.9)


class Unit(nn.Sequential):
    """A convolution without bias and its normalization."""

    def __init__(self, inner: int, channels: int, window: int, stride: int) -> None:
        convolution = nn.Conv2d(inner, channels, window, stride, window // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(channels))


class Block(nn.Module):
    """Two units and a shortcut."""

    def __init__(self, inner: int, channels: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and inner == channels
        self.shortcut = nn.Identity() if same else Unit(inner, channels, 1, stride)
        self.branch = nn.Sequential(Unit(inner, channels, 3, stride), nn.ReLU(), Unit(channels, channels, 3, 1))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.shortcut(data) + self.branch(data))


def resnet18() -> Model:
    layers: list[nn.Module] = [Unit(3, 64, 3, 1), nn.ReLU()]
    inner = 64
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(inner, channels, stride))
        inner = channels
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, torch.optim.SGD(model.parameters(), 1e-2, 0.9)


class SparseCTR(nn.Module):
    """A table of sparse gradients that all slots look up in, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100000, 16, sparse=True)
        self.rest = nn.Sequential(nn.Linear(26 * 16, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 2))

    def forward(self, *slots: torch.Tensor) -> torch.Tensor:
        return self.rest(torch.cat([self.table(ids[:, 0]) for ids in slots], 1))


def sparse_ctr() -> Model:
    model = SparseCTR()
    return model, torch.optim.Adagrad(model.parameters(), 1e-2)


NETWORKS: Mapping[str, Callable[[], Model]] = {
    "mlp": mlp,
    "convolution": convolution,
    "resnet18": resnet18,
    "sparse_ctr": sparse_ctr,
}


def tensors(feed: Mapping[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The inputs and the labels of a batch of training_networks.py."""
    inputs = [torch.from_numpy(np.asarray(array)) for name, array in feed.items() if name != "label"]
    return inputs, torch.from_numpy(feed["label"][:, 0])
