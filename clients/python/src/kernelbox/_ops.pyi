# Written by tools/gen_ops_stub.py from the descriptors. Do not edit.
from collections.abc import Sequence
from typing import Any, Literal, overload

from kernelbox.dtypes import DTypeLike
from kernelbox.tensor import Tensor

class LinearOutputs(tuple[Tensor, ...]):
    y: Tensor
    pre_activation: Tensor

class LinearBackwardOutputs(tuple[Tensor, ...]):
    d_x: Tensor
    d_weight: Tensor
    d_bias: Tensor

class DropoutOutputs(tuple[Tensor, ...]):
    y: Tensor
    rng_used: Tensor

class CrossEntropyLossOutputs(tuple[Tensor, ...]):
    y: Tensor
    log_sum_exp: Tensor
    total_weight: Tensor

class AddBackwardOutputs(tuple[Tensor, ...]):
    d_a: Tensor
    d_b: Tensor

class Ops:
    @overload
    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        activation: Literal["none", "relu", "gelu", "gelu_tanh"] | int | None = "none",
        outputs: None = None,
    ) -> Tensor:
        """Issues the op Linear.

        Args:
            x: tensor; shape (*, in_features).
            weight: tensor; shape (out_features, in_features).
            bias: tensor or None; shape (out_features).
            activation: one of "none", "relu", "gelu", "gelu_tanh".
            outputs: names of outputs to also return: "pre_activation".

        Returns:
            y: tensor; shape (*, out_features).
            pre_activation: tensor; only if asked for; shape (*, out_features) or (0).
            If there are several, a named tuple of those asked for, in this order.
        """
    @overload
    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        activation: Literal["none", "relu", "gelu", "gelu_tanh"] | int | None = "none",
        outputs: Sequence[Literal["y", "pre_activation"]],
    ) -> LinearOutputs: ...
    def linear_backward(
        self,
        x: Tensor,
        weight: Tensor,
        d_y: Tensor,
        bias: Tensor | None = None,
        pre_activation: Tensor | None = None,
        *,
        activation: Literal["none", "relu", "gelu", "gelu_tanh"] | int | None = "none",
        outputs: Sequence[Literal["d_x", "d_weight", "d_bias"]],
    ) -> Any:
        """Issues the op LinearBackward.

        Args:
            x: tensor; shape (*, in_features).
            weight: tensor; shape (out_features, in_features).
            d_y: tensor; shape (*, out_features).
            bias: tensor or None; shape (out_features).
            pre_activation: tensor or None; shape (*, out_features).
            activation: one of "none", "relu", "gelu", "gelu_tanh".
            outputs: names of outputs to return: "d_x", "d_weight", "d_bias".

        Returns:
            d_x: tensor; only if asked for; shape (*, in_features).
            d_weight: tensor; only if asked for; shape (out_features, in_features).
            d_bias: tensor; only if asked for; shape (out_features).
            If there are several, a named tuple of those asked for, in this order.
        """
    def relu(
        self,
        x: Tensor,
    ) -> Tensor:
        """Issues the op ReLU.

        Args:
            x: tensor; shape (*).

        Returns:
            y: tensor; shape (*).
        """
    def relu_backward(
        self,
        x: Tensor,
        d_y: Tensor,
    ) -> Tensor:
        """Issues the op ReLUBackward.

        Args:
            x: tensor; shape (*).
            d_y: tensor; shape (*).

        Returns:
            d_x: tensor; shape (*).
        """
    def gelu(
        self,
        x: Tensor,
        *,
        approximate: Literal["none", "tanh"] | int | None = "none",
    ) -> Tensor:
        """Issues the op GELU.

        Args:
            x: tensor; shape (*).
            approximate: one of "none", "tanh".

        Returns:
            y: tensor; shape (*).
        """
    def gelu_backward(
        self,
        x: Tensor,
        d_y: Tensor,
        *,
        approximate: Literal["none", "tanh"] | int | None = "none",
    ) -> Tensor:
        """Issues the op GELUBackward.

        Args:
            x: tensor; shape (*).
            d_y: tensor; shape (*).
            approximate: one of "none", "tanh".

        Returns:
            d_x: tensor; shape (*).
        """
    @overload
    def dropout(
        self,
        x: Tensor,
        *,
        rng_state: Tensor | None = None,
        p: float = 0.5,
        training: bool = True,
        outputs: None = None,
    ) -> Tensor:
        """Issues the op Dropout.

        Args:
            x: tensor; shape (*).
            rng_state: tensor updated in place; the session's rng unless given; shape (2).
            p: float.
            training: bool.
            outputs: names of outputs to also return: "rng_used".

        Returns:
            y: tensor; shape (*).
            rng_used: tensor; only if asked for; shape (2).
            If there are several, a named tuple of those asked for, in this order.
        """
    @overload
    def dropout(
        self,
        x: Tensor,
        *,
        rng_state: Tensor | None = None,
        p: float = 0.5,
        training: bool = True,
        outputs: Sequence[Literal["y", "rng_used"]],
    ) -> DropoutOutputs: ...
    def dropout_backward(
        self,
        rng_used: Tensor,
        d_y: Tensor,
        *,
        p: float = 0.5,
        training: bool = True,
    ) -> Tensor:
        """Issues the op DropoutBackward.

        Args:
            rng_used: tensor; shape (2).
            d_y: tensor; shape (*).
            p: float.
            training: bool.

        Returns:
            d_x: tensor; shape (*).
        """
    @overload
    def cross_entropy_loss(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Literal["none", "mean", "sum"] | int | None = "mean",
        label_smoothing: float = 0.0,
        outputs: None = None,
    ) -> Tensor:
        """Issues the op CrossEntropyLoss.

        Args:
            x: tensor; shape (C) or (N, C) or (N, C, d1, ...).
            target: tensor; shape () or (N) or (N, d1, ...).
            weight: tensor or None; shape (C).
            ignore_index: int.
            reduction: one of "none", "mean", "sum".
            label_smoothing: float.
            outputs: names of outputs to also return: "log_sum_exp", "total_weight".

        Returns:
            y: tensor; shape () or, with reduction none, target's.
            log_sum_exp: tensor; only if asked for; shape target's.
            total_weight: tensor; only if asked for; shape ().
            If there are several, a named tuple of those asked for, in this order.
        """
    @overload
    def cross_entropy_loss(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Literal["none", "mean", "sum"] | int | None = "mean",
        label_smoothing: float = 0.0,
        outputs: Sequence[Literal["y", "log_sum_exp", "total_weight"]],
    ) -> CrossEntropyLossOutputs: ...
    def cross_entropy_loss_backward(
        self,
        x: Tensor,
        target: Tensor,
        log_sum_exp: Tensor,
        total_weight: Tensor,
        d_y: Tensor,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Literal["none", "mean", "sum"] | int | None = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Issues the op CrossEntropyLossBackward.

        Args:
            x: tensor; shape (C) or (N, C) or (N, C, d1, ...).
            target: tensor; shape () or (N) or (N, d1, ...).
            log_sum_exp: tensor; shape target's.
            total_weight: tensor; shape ().
            d_y: tensor; shape () or, with reduction none, target's.
            weight: tensor or None; shape (C).
            ignore_index: int.
            reduction: one of "none", "mean", "sum".
            label_smoothing: float.

        Returns:
            d_x: tensor; shape x's.
        """
    def sgd(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        lr: Tensor,
        step: Tensor,
        momentum_buffers: Sequence[Tensor] | None = None,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        """Issues the op SGD.

        Args:
            params: list of tensors updated in place; shape (*).
            grads: list of tensors; shape (*).
            lr: tensor; shape ().
            step: tensor updated in place; shape ().
            momentum_buffers: list of tensors updated in place or None; shape (*).
            momentum: float.
            dampening: float.
            weight_decay: float.
            nesterov: bool.
            maximize: bool.
        """
    def adamw(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        lr: Tensor,
        step: Tensor,
        max_exp_avg_sqs: Sequence[Tensor] | None = None,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        """Issues the op AdamW.

        Args:
            params: list of tensors updated in place; shape (*).
            grads: list of tensors; shape (*).
            exp_avgs: list of tensors updated in place; shape (*).
            exp_avg_sqs: list of tensors updated in place; shape (*).
            lr: tensor; shape ().
            step: tensor updated in place; shape ().
            max_exp_avg_sqs: list of tensors updated in place or None; shape (*).
            beta1: float.
            beta2: float.
            eps: float.
            weight_decay: float.
            amsgrad: bool.
            maximize: bool.
        """
    def cast(
        self,
        x: Tensor,
        *,
        dtype: DTypeLike,
    ) -> Tensor:
        """Issues the op Cast.

        Args:
            x: tensor; shape (*).
            dtype: dtype.

        Returns:
            y: tensor; shape (*).
        """
    def cast_backward(
        self,
        x: Tensor,
        d_y: Tensor,
    ) -> Tensor:
        """Issues the op CastBackward.

        Args:
            x: tensor; shape (*).
            d_y: tensor; shape (*).

        Returns:
            d_x: tensor; shape (*).
        """
    def fill(
        self,
        *,
        shape: Sequence[int] | int,
        dtype: DTypeLike,
        value: float,
    ) -> Tensor:
        """Issues the op Fill.

        Args:
            shape: list of int.
            dtype: dtype.
            value: float.

        Returns:
            y: tensor; shape shape.
        """
    def uniform(
        self,
        *,
        rng_state: Tensor | None = None,
        shape: Sequence[int] | int,
        dtype: DTypeLike = "float32",
        low: float = 0.0,
        high: float = 1.0,
    ) -> Tensor:
        """Issues the op Uniform.

        Args:
            rng_state: tensor updated in place; the session's rng unless given; shape (2).
            shape: list of int.
            dtype: dtype.
            low: float.
            high: float.

        Returns:
            y: tensor; shape shape.
        """
    def normal(
        self,
        *,
        rng_state: Tensor | None = None,
        shape: Sequence[int] | int,
        dtype: DTypeLike = "float32",
        mean: float = 0.0,
        std: float = 1.0,
    ) -> Tensor:
        """Issues the op Normal.

        Args:
            rng_state: tensor updated in place; the session's rng unless given; shape (2).
            shape: list of int.
            dtype: dtype.
            mean: float.
            std: float.

        Returns:
            y: tensor; shape shape.
        """
    def add(
        self,
        a: Tensor,
        b: Tensor,
        *,
        alpha: float = 1.0,
    ) -> Tensor:
        """Issues the op Add.

        Args:
            a: tensor; shape (*).
            b: tensor; shape (*), broadcastable with a.
            alpha: float.

        Returns:
            y: tensor; shape the broadcast shape.
        """
    def add_backward(
        self,
        a: Tensor,
        b: Tensor,
        d_y: Tensor,
        *,
        alpha: float = 1.0,
        outputs: Sequence[Literal["d_a", "d_b"]],
    ) -> Any:
        """Issues the op AddBackward.

        Args:
            a: tensor; shape (*).
            b: tensor; shape (*), broadcastable with a.
            d_y: tensor; shape the broadcast shape.
            alpha: float.
            outputs: names of outputs to return: "d_a", "d_b".

        Returns:
            d_a: tensor; only if asked for; shape a's.
            d_b: tensor; only if asked for; shape b's.
            If there are several, a named tuple of those asked for, in this order.
        """
