"""The cross entropy between logits and class indices."""

import numpy as np

from layers.case import ACCUMULATOR, Approx, Draw, Example, Layer


def _rows(x, target):
    """Returns logits as (rows, C) and targets as (rows,), with the class dimension last."""
    classes = x.shape[0] if x.ndim == 1 else x.shape[1]
    logits = x.reshape(1, -1) if x.ndim == 1 else np.moveaxis(x, 1, -1).reshape(-1, classes)
    return logits, target.reshape(-1)


def _unrows(rows, x):
    if x.ndim == 1:
        return rows.reshape(x.shape)
    return np.moveaxis(rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]), -1, 1)


def _log_sum_exp(logits):
    top = logits.max(axis=1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))[:, 0]


def _draw(draw: Draw) -> Example:
    classes = draw.pick([1, 2, 3, 10, 31, 67], "classes")
    rest = draw.pick([None, (), (0,), (1,), (3,), (2, 5)], "shape")
    rows = draw.pick([1, 2, 5, 33], "rows")
    shape = (classes,) if rest is None else (rows, classes, *rest)
    target_shape = () if rest is None else (rows, *rest)
    ignore_index = draw.pick([-100, 0, classes - 1, -1], "ignore_index")
    target = draw.random.integers(0, classes, target_shape)
    if draw.flag("some are ignored"):
        target = np.where(draw.random.random(target_shape) < 0.3, ignore_index, target)
    weight = None
    if draw.flag("weight"):
        weight = draw.random.uniform(0.1, 2.0, classes)
    return Example(
        {
            "x": draw.normal(shape, draw.pick([1.0, 20.0], "scale")),
            "target": np.asarray(target, draw.pick([np.int64, np.int32], "target dtype")),
            "weight": weight,
        },
        {
            "ignore_index": ignore_index,
            "reduction": draw.pick(["mean", "sum", "none"], "reduction"),
            "label_smoothing": draw.pick([0.0, 0.0, 0.1, 1.0], "label_smoothing"),
        },
    )


def _parts(f):
    """Returns logits, the mask of rows that count, their class (0 if ignored), class weights."""
    logits, target = _rows(f.x, f.target)
    counts = target != f.ignore_index
    weight = np.ones(logits.shape[1]) if f.weight is None else f.weight
    return logits, counts, np.where(counts, target, 0), weight


def _forward(f):
    logits, counts, target, weight = _parts(f)
    classes = logits.shape[1]
    log_sum_exp = _log_sum_exp(logits)
    nll = log_sum_exp[:, None] - logits
    picked = np.take_along_axis(nll, target[:, None], axis=1)[:, 0] * weight[target]
    smoothing = f.label_smoothing
    loss = (1 - smoothing) * picked
    if smoothing:
        loss = loss + smoothing / classes * (nll * weight).sum(axis=1)
    loss = np.where(counts, loss, 0.0)
    total_weight = np.where(counts, weight[target], 0.0).sum()
    top = np.where(np.isfinite(logits), np.abs(logits), 0.0).max(axis=1, initial=0.0)
    size = (1 + np.abs(log_sum_exp) + top) * weight.max()
    size = np.where(counts, size, 0.0)
    steps = 16 + classes
    if f.reduction == "none":
        y = Approx(loss.reshape(f.target.shape), size.reshape(f.target.shape), steps)
    elif f.reduction == "sum":
        y = Approx(np.asarray(loss.sum()), size.sum(), steps + len(loss))
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            y = Approx(
                np.asarray(loss.sum() / total_weight),
                size.sum() / max(total_weight, 1e-30),
                steps + len(loss),
            )
    shape = f.target.shape
    return {
        "y": y,
        "log_sum_exp": Approx(log_sum_exp.reshape(shape), 1 + top.reshape(shape), 8 + classes),
        "total_weight": Approx(np.asarray(total_weight), total_weight, 4 + len(loss)),
    }


def _backward(f):
    logits, counts, target, weight = _parts(f)
    classes = logits.shape[1]
    smoothing = f.label_smoothing
    softmax = np.exp(logits - f.log_sum_exp.reshape(-1)[:, None])
    one_hot = np.zeros_like(logits)
    np.put_along_axis(one_hot, target[:, None], 1.0, axis=1)
    share = (1 - smoothing) * one_hot * weight[target][:, None] + smoothing / classes * weight
    d_logits = softmax * share.sum(axis=1, keepdims=True) - share
    if f.reduction == "none":
        d_loss = f.d_y.reshape(-1, 1)
    elif f.reduction == "sum":
        d_loss = f.d_y
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            d_loss = f.d_y / f.total_weight
    with np.errstate(invalid="ignore"):
        value = np.where(counts[:, None], d_logits * d_loss, 0.0)
        # exp turns an error of its argument, some roundings of its terms, into a relative one.
        argument = 1 + np.abs(logits) + np.abs(f.log_sum_exp.reshape(-1)[:, None])
        argument = np.where(np.isfinite(argument), argument, 1.0)
        sizes = softmax * share.sum(axis=1, keepdims=True) * argument + share
        scale = np.where(counts[:, None], np.abs(d_loss) * sizes, 0.0)
    return {"d_x": Approx(_unrows(value, f.x), _unrows(scale, f.x), 8 + classes)}


def _torch(f):
    import torch

    if 0 in f.x.shape:
        return None  # PyTorch can't reshape some of these
    return torch.nn.functional.cross_entropy(
        f.x,
        f.target.long(),
        f.weight,
        ignore_index=f.ignore_index,
        reduction=f.reduction,
        label_smoothing=f.label_smoothing,
    )


LAYER = Layer(
    "cross_entropy_loss",
    _draw,
    _forward,
    _backward,
    dtypes=dict.fromkeys(("weight", "y", "log_sum_exp", "total_weight"), ACCUMULATOR),
    special=[
        # Every target ignored: the mean is 0 / 0, as torch has it.
        Example({"x": np.zeros((2, 3)), "target": np.array([-100, -100]), "weight": None}),
        # Differences that overflow exp unless the largest logit is taken off first.
        Example({"x": np.array([[6e4, -6e4, 0.0]]), "target": np.array([0]), "weight": None}),
        # -inf logits are classes that can't be; their share of the gradient is 0.
        Example({"x": np.array([[0.0, -np.inf, 1.0]]), "target": np.array([2]), "weight": None}),
    ],
    torch=_torch,
    differentiable=["x"],
)
