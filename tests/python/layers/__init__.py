"""An independent reference for each layer: one file a layer, found by its place here."""

from __future__ import annotations

import importlib
import pkgutil

from layers.case import Layer


def all_layers() -> dict[str, Layer]:
    """Returns the `LAYER` of each module of this package, by its op's name."""
    layers = {}
    for module in pkgutil.iter_modules(__path__):
        layer = getattr(importlib.import_module(f"{__name__}.{module.name}"), "LAYER", None)
        if layer is not None:
            layers[layer.op] = layer
    return layers
