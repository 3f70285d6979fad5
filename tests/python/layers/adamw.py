"""One step of Adam with decoupled weight decay."""

import numpy as np

from layers.case import ACCUMULATOR, Approx, Draw, Example, Layer
from layers.sgd import draw_params


def _draw(draw: Draw) -> Example:
    params, grads, grads_dtype = draw_params(draw)
    amsgrad = draw.flag("amsgrad")
    step = draw.pick([0, 1, 10, 1000], "step")

    def moments(scale):
        return [scale * np.abs(draw.normal(p.shape)) * (step > 0) for p in params]

    return Example(
        {
            "params": params,
            "grads": grads,
            "exp_avgs": [m * draw.random.choice([-1, 1], m.shape) for m in moments(0.1)],
            "exp_avg_sqs": moments(0.01),
            "max_exp_avg_sqs": moments(0.01) if amsgrad else [],
            "lr": np.array(draw.pick([0.1, 1e-3], "lr")),
            "step": np.array(step),
        },
        {
            "beta1": draw.pick([0.9, 0.0], "beta1"),
            "beta2": draw.pick([0.999, 0.95], "beta2"),
            "eps": draw.pick([1e-8, 1e-3], "eps"),
            "weight_decay": draw.pick([0.0, 0.01], "weight_decay"),
            "amsgrad": amsgrad,
            "maximize": draw.flag("maximize"),
        },
        {"grads": grads_dtype} if grads_dtype else {},
    )


def _forward(f):
    params, means, squares, tops = [], [], [], []
    t = int(f.step) + 1
    correction1, correction2 = 1 - f.beta1**t, 1 - f.beta2**t
    for index, (param, grad) in enumerate(zip(f.params, f.grads, strict=True)):
        g = -grad if f.maximize else grad
        decayed = param * (1 - f.lr * f.weight_decay)
        mean = f.beta1 * f.exp_avgs[index] + (1 - f.beta1) * g
        square = f.beta2 * f.exp_avg_sqs[index] + (1 - f.beta2) * g * g
        mean_size = np.abs(f.exp_avgs[index]) + np.abs(g)
        means.append(Approx(mean, mean_size, steps=6))
        squares.append(Approx(square, square, steps=8))
        used = square
        if f.amsgrad:
            used = np.maximum(f.max_exp_avg_sqs[index], square)
            tops.append(Approx(used, used, steps=8))
        denominator = np.sqrt(used / correction2) + f.eps
        value = decayed - f.lr * (mean / correction1) / denominator
        change = f.lr * (mean_size / correction1) / denominator
        params.append(Approx(value, np.abs(param) + change, steps=16))
    return {
        "params": params,
        "exp_avgs": means,
        "exp_avg_sqs": squares,
        "max_exp_avg_sqs": tops,
        "step": f.step + 1,
    }


LAYER = Layer(
    "adamw",
    _draw,
    _forward,
    dtypes=dict.fromkeys(("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "lr"), ACCUMULATOR),
)
