"""The networks of training_networks.py in PyTorch, and in what they differ. Imported by torch_worker.py and gpu_training.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Optimizer = torch.optim.Optimizer
Model = tuple[nn.Module, Optimizer | tuple[Optimizer, ...]]


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


class Bottleneck(nn.Module):
    """Three units and a shortcut."""

    def __init__(self, inner: int, channels: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and inner == 4 * channels
        self.shortcut = nn.Identity() if same else Unit(inner, 4 * channels, 1, stride)
        middle = Unit(inner, channels, 1, 1), nn.ReLU(), Unit(channels, channels, 3, stride), nn.ReLU()
        self.branch = nn.Sequential(*middle, Unit(channels, 4 * channels, 1, 1))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.shortcut(data) + self.branch(data))


def resnet50() -> Model:
    layers: list[nn.Module] = [Unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            layers.append(Bottleneck(inner, channels, 2 if block == 0 and stage > 0 else 1))
            inner = 4 * channels
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
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


class LSTM(nn.Module):
    """Packed sequences, the maximum over time of what is no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5000, 128)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.last = nn.Linear(128, 2)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        longest_first = bool(
            (lengths[:-1] >= lengths[1:]).all()
        )  # then nothing is sorted, which no CUDA graph can hold
        packed = nn.utils.rnn.pack_padded_sequence(self.table(words), lengths, True, enforce_sorted=longest_first)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, padding_value=-1.0)
        return self.last(hidden.amax(1))


def lstm() -> Model:
    model = LSTM()
    return model, torch.optim.Adam(model.parameters(), 1e-3)


class DeepFM(nn.Module):
    """Two tables of sparse gradients, pairs by sums, a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.table = nn.Embedding(100000, 1, sparse=True), nn.Embedding(100000, 10, sparse=True)
        layers: list[nn.Module] = []
        for inner in (39 * 10, 400, 400):
            layers += [nn.Linear(inner, 400), nn.ReLU()]
        self.deep = nn.Sequential(*layers, nn.Linear(400, 1))

    def forward(self, ids: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        weights = values[:, :, None]
        linear = (self.first(ids) * weights).sum(1)
        rows = self.table(ids) * weights
        pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True)
        return linear + 0.5 * pairs + self.deep(rows.flatten(1))


def deepfm() -> Model:
    model = DeepFM()
    tables = [model.first.weight, model.table.weight]
    sparse = torch.optim.SparseAdam(tables, 1e-3)
    return model, (sparse, torch.optim.Adam([*model.deep.parameters()], 1e-3))


def with_one_bias(layer: Any) -> Any:
    """A recurrent layer that trains one bias, as those of Paddle have: the other stays 0."""
    for name, parameter in layer.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter)
            parameter.requires_grad_(False)
    return layer


class Seq2seq(nn.Module):
    """A packed encoder both ways, and a loop over the words of the target with additive attention over padded ones."""

    def __init__(self) -> None:
        super().__init__()
        words, width = 5000, 128
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = with_one_bias(nn.GRU(width, width, batch_first=True, bidirectional=True))
        self.keys, self.start = nn.Linear(2 * width, width, bias=False), nn.Linear(width, width)
        self.query, self.score = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
        self.cell, self.last = with_one_bias(nn.GRUCell(3 * width, width)), nn.Linear(width, words)

    def forward(
        self, source: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor, written: torch.Tensor
    ) -> torch.Tensor:
        embedded = nn.utils.rnn.pack_padded_sequence(self.source(source), lengths, True, enforce_sorted=False)
        encoded, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(embedded)[0], batch_first=True)
        padding = (torch.arange(encoded.shape[1]) >= lengths[:, None])[:, :, None]
        keys, given = self.keys(encoded), self.target(target)
        state = torch.tanh(self.start(encoded[:, 0, encoded.shape[2] // 2 :]))
        states = []
        for step in range(given.shape[1]):
            scores = self.score(torch.tanh(keys + self.query(state)[:, None])).masked_fill(padding, float("-inf"))
            seen = (functional.softmax(scores, 1) * encoded).sum(1)
            state = self.cell(torch.cat([seen, given[:, step]], 1), state)
            states.append(state)
        inside = torch.arange(given.shape[1]) < written[:, None]
        return self.last(torch.stack(states, 1)[inside])


def seq2seq() -> Model:
    model = Seq2seq()
    return model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-3)


class Layer(nn.Module):
    """One of BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = data.shape
        shape = batch, length, self.heads, width // self.heads
        query, key, value = (
            project(data).view(shape).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, mask, 0.1 if self.training else 0.0)
        seen = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        data = self.first(data + self.dropout(seen))
        inner = self.outer(functional.gelu(self.inner(data)))
        return self.second(data + self.dropout(inner))


class BERT(nn.Module):
    """The encoder, and a classifier of its first row."""

    def __init__(self) -> None:
        super().__init__()
        width = 768
        self.words, self.positions, self.kinds = (nn.Embedding(rows, width) for rows in (30522, 512, 2))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(width, 12) for _ in range(12))
        self.pool, self.last = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        data = self.words(ids[:, :, 0]) + self.positions(positions[:, :, 0]) + self.kinds(kinds[:, :, 0])
        data = self.dropout(self.norm(data))
        for layer in self.layers:
            data = layer(data, mask)
        return self.last(self.dropout(torch.tanh(self.pool(data[:, 0]))))


def bert_base() -> Model:
    model = BERT()
    return model, torch.optim.Adam(model.parameters(), 2e-5)


def scores_of_classes(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores, label[:, 0])


def scores_of_clicks(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(scores, label.to(torch.float32))


@dataclass(frozen=True)
class Network:
    """A model with its optimizers, and the loss of what it gives for a batch."""

    make: Callable[[], Model]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = scores_of_classes


NETWORKS: Mapping[str, Network] = {
    "mlp": Network(mlp),
    "convolution": Network(convolution),
    "resnet18": Network(resnet18),
    "resnet50": Network(resnet50),
    "lstm": Network(lstm),
    "sparse_ctr": Network(sparse_ctr),
    "deepfm": Network(deepfm, scores_of_clicks),
    "seq2seq": Network(seq2seq),
    "bert_base": Network(bert_base),
}


def tensors(feed: Mapping[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The inputs and the labels of a batch of training_networks.py.

    Sequences become padded ids and lengths, labels that are sequences one row behind the other.
    """
    inputs: list[torch.Tensor] = []
    for name, value in feed.items():
        if name == "label":
            continue
        if isinstance(value, tuple):
            rows, lengths = value
            parts = torch.from_numpy(rows[:, 0]).split(lengths)
            inputs += [nn.utils.rnn.pad_sequence(parts, batch_first=True), torch.tensor(lengths)]
        else:
            inputs.append(torch.from_numpy(np.asarray(value)))
    label = feed["label"]
    return inputs, torch.from_numpy(label[0] if isinstance(label, tuple) else label)
