"""What torch works out anew at every export, worked out once: internals of torch, each with the reason and a guard.

``tests/torch_graph/test_torch_internals.py`` names both.

* ``torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib``: reads the source of 540 mappings at every
  export, 0.4 s; it is read once instead.
* ``torch._export.utils._materialize_cpp_cia_ops``: torch asks for the list of its composite operators, and makes sure
  that each is in ``torch.ops``, a hundred times per export (three times for every namespace of operators): a third of
  the time that a small model takes. Once will do.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from opbridge.torch_graph import LOWEST_OPSET

__all__ = ["reusing_operator_list", "reusing_registry"]


@functools.cache
def _from_torchlib() -> Any:
    """torch.onnx's own reader of its mappings, a classmethod; None where this torch has none of that name."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return vars(ONNXRegistry).get("from_torchlib")


@functools.cache
def _registry(opset_version: int, libraries: tuple[str, ...]) -> Any:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return _from_torchlib().__func__(ONNXRegistry, opset_version=opset_version)


_LIBRARIES = ("torchvision", "torch.ao.quantization.fx._decomposed")


@contextlib.contextmanager
def reusing_registry() -> Iterator[None]:
    """Let torch.onnx read its mappings once per opset instead of at every export.

    Each export gets a table of its own, since it adds the custom translations to it.
    """
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    own = _from_torchlib()
    if own is None:
        yield
        return

    def copied(opset_version: int = LOWEST_OPSET) -> Any:
        # The operators of these have mappings from the moment on that they are imported.
        libraries = tuple(name for name in _LIBRARIES if name in sys.modules)
        registry = copy.copy(_registry(opset_version, libraries))
        registry.functions = {target: list(metas) for target, metas in registry.functions.items()}
        return registry

    ONNXRegistry.from_torchlib = staticmethod(copied)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        # Whichever of two threads ends first, it is torch's own that comes back.
        ONNXRegistry.from_torchlib = own  # type: ignore[method-assign]


@contextlib.contextmanager
def reusing_operator_list() -> Iterator[None]:
    """Let torch bring its composite operators into ``torch.ops`` once, until the end of the context.

    What is registered from Python meanwhile is there by itself.
    """
    from torch._export import utils

    own = getattr(utils, "_materialize_cpp_cia_ops", None)
    if own is None:
        yield
        return
    # A context within another one asks no more.
    utils._materialize_cpp_cia_ops = own if isinstance(own, _Once) else _Once(own)  # type: ignore[assignment]
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = own


class _Once:
    """A function without arguments and results that is called once."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()
