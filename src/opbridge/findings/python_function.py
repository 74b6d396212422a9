"""A function that is not a torch operator receives a tensor of the graph.

What it means: a C++ function bound with pybind11, a NumPy or SciPy call, ctypes, Numba or a CUDA kernel accesses the
tensor's memory.

Why it is a problem: tensors have shapes but no memory during the capture, and the graph cannot contain a call of such a
function.

Example::

    y = torch.from_numpy(np.sort(x.numpy()))
    z = my_extension.roi_pool(x, boxes)        # PYBIND11_MODULE

Fix: write the function with torch operators; or make it an operator, which stays one node of the graph::

    @opbridge.operator("mylib::roi_pool")
    def roi_pool(x: Tensor, boxes: Tensor) -> Tensor:
        return my_extension.roi_pool(x, boxes)

    @roi_pool.fake                               # the shape of the result
    def _(x, boxes):
        return x.new_empty(boxes.shape[0], x.shape[1], 7, 7)
"""

from __future__ import annotations

import re

from opbridge.findings.base import Failure, Finding, shortened
from opbridge.torch_graph.sources import SourceLine
from opbridge.torch_graph.statements import called_name

CODE = "python-function"

_PATTERNS = (
    "Cannot access data pointer of Tensor",
    ".numpy() is not supported for tensor subclasses",
    "Cannot access storage of",
    "its data is not allocated yet",
    "can't convert FakeTensor",
)

_READING = ("data_ptr", "numpy", "untyped_storage", "to_dlpack", "from_dlpack")
_INSTEAD = {"deepcopy": "copy the tensor with its clone() method."}


def explain(failure: Failure) -> Finding | None:
    """Recognized by torch's messages for accesses to the memory of a tensor without memory: bare RuntimeErrors."""
    if failure.in_fake or not any(pattern in failure.text for pattern in _PATTERNS):
        return None
    called = called_name(failure.place) or _reading_method(failure.place)
    text = f"`{called}(...)`" if called else f"`{shortened(failure.place.text)}`" if failure.place else "A function"
    last = (called or "").rpartition(".")[2]
    return failure.finding(
        CODE,
        called or (failure.place.text if failure.place else "forward"),
        f"{text}{failure.at} is not a torch operator: it accesses a tensor's memory, which does not exist during the "
        "capture.",
        _INSTEAD.get(last) or _fix(called, last),
    )


def _fix(called: str | None, last: str) -> str:
    import torch

    name = last if called and last not in _READING else "my_op"
    known = (called or "").rpartition(".")[0] in ("np", "numpy") and name == last and hasattr(torch, last)
    first = f"use torch.{last}" if known else "write it with torch operators"
    return (
        f"{first}; or move the call into a function decorated with @opbridge.operator('mylib::{name}'), define the "
        f"result's shape with @{name}.fake and torch code for the engine with @{name}.set_body."
    )


def _reading_method(source: SourceLine | None) -> str | None:
    match = re.search(rf"[\w.]+\.({'|'.join(_READING)})(?=\()", source.text if source is not None else "")
    return match[0] if match else None
