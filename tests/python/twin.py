"""A training step of a multilayer perceptron in NumPy and float64: what the server has to match."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from layers.cross_entropy_loss import LAYER as CROSS_ENTROPY
from layers.dropout import keep_mask


class Twin:
    """Linear layers with ReLU and dropout between them, cross entropy, SGD with momentum."""

    def __init__(self, weights, biases, *, p, seed, lr, momentum, weight_decay):
        self.params = [
            w.astype(np.float64) for pair in zip(weights, biases, strict=True) for w in pair
        ]
        self.buffers = [np.zeros_like(p) for p in self.params]
        self.p, self.rng = p, np.array([seed, 0], np.int64)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.steps = 0

    def _mask(self, shape):
        count = int(np.prod(shape))
        mask = keep_mask(self.rng, count, self.p).reshape(shape) / (1 - self.p)
        self.rng = self.rng + np.array([0, -(-count // 4)])
        return mask

    def step(self, x, target):
        layers = len(self.params) // 2
        inputs, slopes = [], []
        h = x.astype(np.float64)
        for index in range(layers):
            inputs.append(h)
            h = h @ self.params[2 * index].T + self.params[2 * index + 1]
            if index < layers - 1:
                slope = (h > 0).astype(np.float64)
                if self.p:
                    slope *= self._mask(h.shape)
                slopes.append(slope)
                h = h * slope
        options = {
            "weight": None,
            "ignore_index": -100,
            "reduction": "mean",
            "label_smoothing": 0.0,
        }
        loss = CROSS_ENTROPY.forward(SimpleNamespace(x=h, target=target, **options))
        saved = {name: loss[name].value for name in ("log_sum_exp", "total_weight")}
        gradient = CROSS_ENTROPY.backward(
            SimpleNamespace(x=h, target=target, d_y=np.float64(1), **saved, **options)
        )["d_x"].value
        gradients = [None] * len(self.params)
        for index in reversed(range(layers)):
            gradients[2 * index] = gradient.T @ inputs[index]
            gradients[2 * index + 1] = gradient.sum(axis=0)
            gradient = gradient @ self.params[2 * index]
            if index > 0:
                gradient = gradient * slopes[index - 1]
        for index, g in enumerate(gradients):
            g = g + self.weight_decay * self.params[index]
            buffer = g if self.steps == 0 else self.momentum * self.buffers[index] + g
            self.buffers[index] = buffer
            self.params[index] = self.params[index] - self.lr * (buffer if self.momentum else g)
        self.steps += 1
        return float(loss["y"].value)
