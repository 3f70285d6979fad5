"""One step of stochastic gradient descent."""

import numpy as np

from layers.case import ACCUMULATOR, FLOATING, Approx, Draw, Example, Layer


def draw_params(draw: Draw):
    """Returns parameters and gradients of several shapes, and the gradients' dtype or None."""
    shapes = [draw.shape(0, 3) for _ in range(draw.pick([1, 2, 5], "parameters"))]
    grads_dtype = None
    if draw.dtype != "float64":
        grads_dtype = draw.pick([None, *FLOATING[1:]], "dtype of gradients")
    return [draw.normal(s) for s in shapes], [draw.normal(s) for s in shapes], grads_dtype


def _draw(draw: Draw) -> Example:
    params, grads, grads_dtype = draw_params(draw)
    momentum = draw.pick([0.0, 0.9], "momentum")
    nesterov = momentum > 0 and draw.flag("nesterov")
    buffers = [draw.normal(p.shape) for p in params] if momentum else []
    return Example(
        {
            "params": params,
            "grads": grads,
            "momentum_buffers": buffers,
            "lr": np.array(draw.pick([0.1, 1e-3], "lr")),
            "step": np.array(draw.pick([0, 1, 7], "step")),
        },
        {
            "momentum": momentum,
            "dampening": 0.0 if nesterov else draw.pick([0.0, 0.5], "dampening"),
            "weight_decay": draw.pick([0.0, 0.1], "weight_decay"),
            "nesterov": nesterov,
            "maximize": draw.flag("maximize"),
        },
        {"grads": grads_dtype} if grads_dtype else {},
    )


def _forward(f):
    params, buffers = [], []
    for index, (param, grad) in enumerate(zip(f.params, f.grads, strict=True)):
        d = -grad if f.maximize else grad
        d = d + f.weight_decay * param
        size = np.abs(grad) + f.weight_decay * np.abs(param)
        stored = 0.0
        if f.momentum:
            buffer = d
            if f.step > 0:
                before = f.momentum_buffers[index]
                buffer = f.momentum * before + (1 - f.dampening) * d
                size = size + f.momentum * np.abs(before)
            buffers.append(Approx(buffer, size, steps=6))
            d = d + f.momentum * buffer if f.nesterov else buffer
            stored = f.lr * np.abs(buffer)  # the buffer may be stored before it is used
        value = param - f.lr * d
        params.append(Approx(value, np.abs(param) + f.lr * size, steps=8, stored=stored))
    return {"params": params, "momentum_buffers": buffers, "step": f.step + 1}


LAYER = Layer("sgd", _draw, _forward, dtypes={"lr": ACCUMULATOR})
