"""Neural-network layers on a Kernelbox server, by tensor handles.

Example:
    with kernelbox.connect("127.0.0.1:50051") as session:
        x = session.tensor([[1.0, -2.0]])
        print(session.relu(x).numpy())
"""

from kernelbox import errors, optim
from kernelbox.dtypes import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
)
from kernelbox.errors import KernelboxError
from kernelbox.server import Server
from kernelbox.session import Session, connect, server_info
from kernelbox.tape import Tape
from kernelbox.tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "KernelboxError",
    "Server",
    "Session",
    "Tape",
    "Tensor",
    "bfloat16",
    "bool_",
    "connect",
    "errors",
    "float16",
    "float32",
    "float64",
    "int32",
    "int64",
    "optim",
    "server_info",
    "uint8",
]
