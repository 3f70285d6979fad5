"""Optimizers with torch.optim's names, over the server's ops.

All state lives on the server: the moments, the step count and the learning rate are tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernelbox import dtypes
from kernelbox.tensor import Tensor


class Optimizer:
    """What SGD and AdamW share: parameters, their gradients, learning rate and step count."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params = list(params)
        if not self.params:
            raise ValueError("an optimizer needs at least one parameter")
        self._session = self.params[0].session
        doubles = {param.dtype == dtypes.float64 for param in self.params}
        if len(doubles) > 1:
            raise ValueError("one optimizer can't mix float64 parameters with others")
        # Of the learning rate and the moments.
        self._dtype: np.dtype[Any] = dtypes.float64 if True in doubles else dtypes.float32
        self._step = self._session._full((), dtypes.int64, 0)
        self.lr = lr

    @property
    def lr(self) -> float:
        """The learning rate. Settable; takes effect with the next step."""
        return self._lr_value

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr_value = float(value)
        self._lr = self._session._full((), self._dtype, self._lr_value)

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Updates all parameters from their gradients. Raises ValueError if one has none."""
        grads = [param.grad for param in self.params]
        missing = [index for index, grad in enumerate(grads) if grad is None]
        if missing:
            raise ValueError(f"parameter {missing[0]} has no gradient; call backward first")
        with self._session.no_grad():
            self._update(grads)

    def _update(self, grads: list[Any]) -> None:
        raise NotImplementedError

    def _zeros(self, dtype: np.dtype[Any] | None = None) -> list[Tensor]:
        """Returns a tensor of zeros for each parameter; of its dtype unless one is given."""
        return [self._session._full(p.shape, dtype or p.dtype, 0.0) for p in self.params]


class SGD(Optimizer):
    """Stochastic gradient descent. torch.optim.SGD."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self._options: dict[str, Any] = {
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        self._momentum_buffers = self._zeros() if momentum else None

    def _update(self, grads: list[Any]) -> None:
        self._session.sgd(
            self.params, grads, self._lr, self._step, self._momentum_buffers, **self._options
        )


class AdamW(Optimizer):
    """Adam with decoupled weight decay. torch.optim.AdamW."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self._options: dict[str, Any] = {
            "beta1": betas[0],
            "beta2": betas[1],
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        self._exp_avgs = self._zeros(self._dtype)
        self._exp_avg_sqs = self._zeros(self._dtype)
        self._max_exp_avg_sqs = self._zeros(self._dtype) if amsgrad else None

    def _update(self, grads: list[Any]) -> None:
        self._session.adamw(
            self.params,
            grads,
            self._exp_avgs,
            self._exp_avg_sqs,
            self._lr,
            self._step,
            self._max_exp_avg_sqs,
            **self._options,
        )
