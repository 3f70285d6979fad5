"""The ops as methods, made from the descriptors; `_ops.pyi` tells type checkers of them."""

from kernelbox._op_methods import make_ops_class

Ops = make_ops_class()
