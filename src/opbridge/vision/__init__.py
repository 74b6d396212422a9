"""Operators of detection models for which neither PyTorch nor ONNX has one.

Each file of ``ops/`` defines one operator, which is imported on first use::

    from opbridge.vision import nms_rotated

An operator is declared with :func:`opbridge.operator`: it is the torch operator ``opbridge_vision::NAME``, and one node
of that name in an ONNX model, with a function body and a compiled kernel. Nodes that older tools wrote into ONNX models
are converted to these operators and to standard ones (:mod:`opbridge.vision.old_nodes`).
"""

import importlib
import pkgutil
from typing import Any

from opbridge.vision import ops

__all__ = [info.name for info in pkgutil.iter_modules(ops.__path__)]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{ops.__name__}.{name}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
