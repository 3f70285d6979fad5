"""Trains a multilayer perceptron on handwritten digits, entirely on a Kernelbox server.

The 1,797 digits that scikit-learn ships go up once, and each step's choice of them; scalars and the
test set's logits come down. Weights, activations, gradients and the optimizer's state never leave
the server.

    python digits_mlp.py --server build/cpu/bin/kernelboxd
    python digits_mlp.py --connect 127.0.0.1:50051
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import kernelbox
import matplotlib as mpl
import numpy as np
from kernelbox import Session, Tensor
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZES = (64, 256, 128, 10)
DROPOUT = 0.2
SMOOTHING = 0.05  # of the labels
REQUIRED_ACCURACY = 0.97


class MLP:
    """Linear layers with ReLU fused in, and dropout between them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.params: list[Tensor] = []
        for inputs, outputs in itertools.pairwise(SIZES):
            bound = math.sqrt(6 / inputs)  # He's, for ReLU
            weight = session.uniform(shape=(outputs, inputs), low=-bound, high=bound)
            bias = session.fill(shape=(outputs,), dtype="float32", value=0)
            self.params += [weight, bias]
        for param in self.params:
            param.requires_grad = True

    def logits(self, x: Tensor, *, training: bool) -> Tensor:
        """Returns the logits, (n, 10), of images, (n, 64)."""
        for index in range(0, len(self.params) - 2, 2):
            weight, bias = self.params[index : index + 2]
            x = self._session.linear(x, weight, bias, activation="relu")
            x = self._session.dropout(x, p=DROPOUT, training=training)
        return self._session.linear(x, *self.params[-2:])


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images for training and testing, (n, 64) in [-1, 1], and their labels."""
    digits = load_digits()
    images = (digits.data / 8.0 - 1.0).astype(np.float32)
    return tuple(
        train_test_split(
            images, digits.target, test_size=360, stratify=digits.target, random_state=0
        )
    )


def train(
    session: Session,
    model: MLP,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    batch: int,
) -> list[float]:
    """Trains and returns the loss of each step."""
    optimizer = kernelbox.optim.AdamW(model.params, lr=3e-3, weight_decay=1e-2)
    order = np.random.default_rng(0)
    steps = epochs * (len(images) // batch)
    losses: list[float] = []
    running: list[Tensor] = []
    with tqdm(total=steps, desc="training", unit="step", mininterval=0.5) as progress:
        for step in range(steps):
            if step % (len(images) // batch) == 0:
                shuffled = iter(order.permutation(len(images) // batch * batch).reshape(-1, batch))
            chosen = next(shuffled)
            # Cosine decay; the new rate is a number on the server too.
            optimizer.lr = 3e-3 * 0.5 * (1 + math.cos(math.pi * step / steps))
            x, target = session.tensor(images[chosen]), session.tensor(labels[chosen])
            optimizer.zero_grad()
            with session.tape() as tape:
                logits = model.logits(x, training=True)
                loss = session.cross_entropy_loss(logits, target, label_smoothing=SMOOTHING)
            tape.backward(loss)
            optimizer.step()
            running.append(loss)
            # Reading a value waits for it, so read rarely.
            if len(running) == 20 or step == steps - 1:
                losses += [value.item() for value in running]
                running.clear()
                progress.set_postfix(loss=f"{losses[-1]:.4f}")
            progress.update()
    return losses


def predict(session: Session, model: MLP, images: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the ten digits for each image."""
    logits = model.logits(session.tensor(images), training=False).numpy()
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def plot_losses(losses: list[float], title: str, path: Path) -> None:
    """Saves the loss of each step and its running mean."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps = np.arange(1, len(losses) + 1)
    width = max(1, min(25, len(losses) // 4))
    smooth = np.convolve(losses, np.ones(width) / width, mode="valid")
    # A perfect network has the entropy of the smoothed labels.
    other = SMOOTHING / SIZES[-1]
    label = 1 - SMOOTHING + other
    least = -label * math.log(label) - (SIZES[-1] - 1) * other * math.log(other)
    axes.plot(steps, losses, color="#9ecae1", linewidth=0.8, label="each step")
    axes.plot(steps[width - 1 :], smooth, color="#08519c", label=f"mean of {width} steps")
    axes.axhline(least, color="#888888", linestyle=":", label="the least possible")
    axes.set(title=title, xlabel="step", ylabel="cross entropy", yscale="log")
    axes.set(xlim=(0, len(losses)), yticks=[0.3, 0.5, 1, 2, 4])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_digits(
    images: np.ndarray, labels: np.ndarray, probabilities: np.ndarray, title: str, path: Path
) -> None:
    """Saves a grid of test digits with their predictions: wrong ones first, and in red."""
    predictions = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predictions != labels)[:20]
    right = np.flatnonzero(predictions == labels)
    shown = np.concatenate([wrong, right[: 60 - len(wrong)]])
    columns = 10
    rows = -(-len(shown) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(columns * 1.1, rows * 1.35 + 0.6), layout="constrained"
    )
    figure.suptitle(title)
    for axes in grid.flat:
        axes.axis("off")
    for axes, index in zip(grid.flat, shown, strict=False):
        is_wrong = predictions[index] != labels[index]
        axes.imshow(images[index].reshape(8, 8), cmap="gray_r", vmin=-1, vmax=1)
        text = f"{predictions[index]}  ({probabilities[index].max():.0%})"
        if is_wrong:
            text = f"{predictions[index]}, is {labels[index]}"
        axes.set_title(text, fontsize=10, color="red" if is_wrong else "black", pad=3)
        axes.axis("on")
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(color="red" if is_wrong else "#bbbbbb", linewidth=2.0 if is_wrong else 0.8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@contextlib.contextmanager
def open_session(options: argparse.Namespace) -> Iterator[tuple[Session, str]]:
    """Yields a session and its server's backend; a server that this started is stopped."""
    with contextlib.ExitStack() as stack:
        if options.connect:
            session = stack.enter_context(kernelbox.connect(options.connect))
            backend = session.server_info().backend
            if options.backend not in ("auto", backend):
                sys.exit(f"demo: the server at {options.connect} runs on {backend}")
        else:
            server = stack.enter_context(
                kernelbox.Server(
                    options.server, backend=options.backend, log=options.out / "kernelboxd.log"
                )
            )
            session = stack.enter_context(server.connect())
            backend = server.backend
        print(f"demo: training on the {backend} backend of {session.target}", flush=True)
        yield session, backend


def parse_arguments() -> argparse.Namespace:
    """Returns the command line's options."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits over gRPC.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", help="kernelboxd to start (default: $KERNELBOXD or the PATH)")
    where.add_argument("--connect", metavar="TARGET", help="use a running server: host:port")
    parser.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the pictures")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


def main() -> int:
    """Runs the demo; returns the exit status."""
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    train_images, test_images, train_labels, test_labels = load_data()
    with open_session(options) as (session, backend):
        session.manual_seed(0)
        model = MLP(session)
        losses = train(
            session, model, train_images, train_labels, epochs=options.epochs, batch=options.batch
        )
        probabilities = predict(session, model, test_images)
    accuracy = float((probabilities.argmax(axis=1) == test_labels).mean())
    title = f"{len(test_labels)} test digits, {accuracy:.1%} right, wrong ones first ({backend})"
    plot_losses(
        losses,
        f"Training on {len(train_labels)} digits ({backend} backend)",
        options.out / "loss.png",
    )
    plot_digits(test_images, test_labels, probabilities, title, options.out / "digits.png")
    print(f"demo: saved {options.out / 'loss.png'} and {options.out / 'digits.png'}")
    loss = float(np.mean(losses[-20:]))
    print(
        f"demo: backend={backend} steps={len(losses)} loss={loss:.4f} test_accuracy={accuracy:.4f}"
    )
    if accuracy < REQUIRED_ACCURACY:
        print(
            f"demo: the accuracy is below {REQUIRED_ACCURACY}: the layers, the client or the "
            "options (--epochs, --batch) are at fault",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
