"""Spares work that torch repeats in every export; each function uses an internal of torch, with a guard.

``tests/torch_graph/test_torch_internals.py`` names these internals.

* ``torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib`` reads the source of 540 mappings, by
  ``onnxscript_apis.get_torchlib_ops``, in every export, which takes 0.4 s. Here it is read only once.
* ``torch._export.utils._materialize_cpp_cia_ops`` lists torch's composite operators and adds each to ``torch.ops``, a
  hundred times per export (three times for each namespace of operators), which takes a third of the export time of a
  small model. Here it runs only once.
* ``torch._ops.OperatorBase.py_impl`` evaluates annotations with type variables each time it is called, and
  ``run_decompositions`` calls it 11,000 times per program, which takes 35 of 50 ms. Here it evaluates none.
* ``torch.export.exported_program._override_composite_implicit_decomp`` registers 20 kernels for each of the 500
  composite operators, also for the 410 that decompose as they do without it. Here those are left out.
* ``torch.onnx._internal.exporter._fx_passes.decompose_with_registry`` makes a table of 1,500 decompositions, which a
  program that is decomposed already ignores. Here it makes none.
* ``torch.onnx._internal.fx.passes.type_promotion._TypePromotionInterpreter`` computes the shape of every result of a
  program again (``run_node``, ``_run_node_and_set_meta``), of some data-dependent sizes without success. Here it takes
  the known results.
* ``torch._export.utils._check_valid_to_preserve`` reads the schema of each operator, three times per program. Here it
  reads a schema once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from opbridge.torch_graph import LOWEST_OPSET

__all__ = [
    "decomposing_quickly",
    "mappings_of_onnxscript",
    "overriding_few_operators",
    "quantized_operators",
    "registering_kernels",
    "reusing_operator_list",
    "reusing_registry",
    "with_known_results",
    "without_second_decomposition",
]


@functools.cache
def _from_torchlib() -> Any:
    """The classmethod that reads the mappings of torch.onnx; None if this version of torch does not have it."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return vars(ONNXRegistry).get("from_torchlib")


@functools.cache
def mappings_of_onnxscript() -> tuple[Any, ...]:
    """``onnxscript._framework_apis.torch_2_5.get_torchlib_ops()``: translates 540 functions each time it is called.

    Of a function that it traces it needs the domain alone, for which it would read and parse its source.
    """
    from onnxscript import values
    from torch.onnx._internal._lazy_import import onnxscript_apis

    traced = getattr(values, "TracedOnnxFunction", None)
    if traced is None:
        return tuple(onnxscript_apis.get_torchlib_ops())
    unread = property(lambda self: types.SimpleNamespace(domain=self.opset.domain))
    with mock.patch.object(traced, "function_ir", unread, create=True):
        return tuple(onnxscript_apis.get_torchlib_ops())


@functools.cache
def _registry(opset_version: int, libraries: tuple[str, ...]) -> Any:
    from torch.onnx._internal._lazy_import import onnxscript_apis
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    found = mappings_of_onnxscript()
    with mock.patch.object(onnxscript_apis, "get_torchlib_ops", return_value=list(found)):
        return _from_torchlib().__func__(ONNXRegistry, opset_version=opset_version)


@contextlib.contextmanager
def without_second_decomposition() -> Iterator[None]:
    """Make torch.onnx take a decomposed program, of a class of its own, as it is; for one thread."""
    from torch.onnx._internal.exporter import _fx_passes

    own = _fx_passes.decompose_with_registry

    def decomposed(program: torch.export.ExportedProgram, registry: Any) -> torch.export.ExportedProgram:
        # Another thread may call torch.onnx.export.
        return own(program, registry) if type(program) is torch.export.ExportedProgram else program

    with mock.patch.object(_fx_passes, "decompose_with_registry", decomposed):
        yield


@contextlib.contextmanager
def with_known_results() -> Iterator[None]:
    """Make torch.onnx compute only results of operators whose inputs it converts to another type; for one thread.

    Of these it computes the type alone where it lacks facts about data-dependent sizes, which were checked before.
    """
    from torch.onnx._internal.fx.passes import type_promotion

    # Newer versions may convert types in another way.
    if torch.__version__ >= "2.16":
        yield
        return
    interpreter = type_promotion._TypePromotionInterpreter
    own = interpreter.run_node

    def run_node(self: Any, node: torch.fx.Node) -> Any:
        if node.op != "call_function" or "val" not in node.meta:
            return own(self, node)
        rule = type_promotion.get_type_promotion_rule(node, self.type_promotion_table)
        if rule is not None:
            with self._set_current_node(node):
                self._maybe_promote_node(node, rule)
        return node.meta["val"]

    own_result = interpreter._run_node_and_set_meta

    def result(self: Any, node: torch.fx.Node) -> Any:
        known = node.meta.get("val")
        try:
            return own_result(self, node)
        except GuardOnDataDependentSymNode:
            if not isinstance(known, torch.Tensor):
                raise
            given = torch.utils._pytree.tree_map_only(
                torch.Tensor,
                lambda x: torch.empty([1] * x.dim(), dtype=x.dtype, device="meta"),
                self.fetch_args_kwargs_from_env(node),
            )
            assert callable(node.target)
            node.meta["val"] = self.env[node] = known.to(node.target(*given[0], **given[1]).dtype)
            return node.meta["val"]

    with (
        mock.patch.object(interpreter, "run_node", run_node),
        mock.patch.object(interpreter, "_run_node_and_set_meta", result),
    ):
        yield


_LIBRARIES = ("torchvision", "torch.ao.quantization.fx._decomposed")


@contextlib.contextmanager
def reusing_registry() -> Iterator[None]:
    """Make torch.onnx read its mappings once per opset instead of in every export.

    Each export gets a separate copy of the table, because it adds custom translations to it.
    """
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    own = _from_torchlib()
    if own is None:
        yield
        return

    def copied(opset_version: int = LOWEST_OPSET) -> Any:
        # The operators of these packages have mappings as soon as the packages are imported.
        libraries = tuple(name for name in _LIBRARIES if name in sys.modules)
        registry = copy.copy(_registry(opset_version, libraries))
        registry.functions = {target: list(metas) for target, metas in registry.functions.items()}
        return registry

    ONNXRegistry.from_torchlib = staticmethod(copied)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        # This restores torch's own function regardless of which of two threads ends first.
        ONNXRegistry.from_torchlib = own  # type: ignore[method-assign,assignment]


@contextlib.contextmanager
def reusing_operator_list() -> Iterator[None]:
    """Make torch add its composite operators to ``torch.ops`` only once within the context.

    Operators that are registered from Python in the meantime are added by their registration.
    """
    from torch._export import utils

    own = getattr(utils, "_materialize_cpp_cia_ops", None)
    if own is None:
        yield
        return
    # A nested context does nothing.
    utils._materialize_cpp_cia_ops = own if isinstance(own, _Once) else _Once(own)  # type: ignore[assignment]
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = own


class _Once:
    """Wraps a function without arguments and results so that it is called only once."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


@contextlib.contextmanager
def decomposing_quickly() -> Iterator[None]:
    """:func:`registering_kernels` and :func:`overriding_few_operators`."""
    with registering_kernels(), overriding_few_operators():
        yield


@contextlib.contextmanager
def registering_kernels() -> Iterator[None]:
    """Make torch register Python kernels of its operators without evaluating annotations each time."""
    from torch._ops import OperatorBase

    # Newer versions may register kernels in another way.
    if torch.__version__ >= "2.16":
        yield
        return
    OperatorBase.py_impl = _py_impl  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        OperatorBase.py_impl = _own_py_impl  # type: ignore[method-assign,assignment]


def _py_impl(self: Any, key: Any) -> Callable[[Any], Any]:
    """``torch._ops.OperatorBase.py_impl``."""
    if not isinstance(key, torch._C.DispatchKey) or key == torch._C.DispatchKey.Python or key in self.py_kernels:
        return _own_py_impl(self, key)

    def register(function: Any) -> Any:
        self.py_kernels[key] = function
        self._dispatch_cache.clear()
        return function

    return register


_own_py_impl = torch._ops.OperatorBase.py_impl


@contextlib.contextmanager
def overriding_few_operators() -> Iterator[None]:
    """Make torch override only composite operators that decompose in another way than usual; for one thread."""
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    # Newer versions may override operators in another way.
    if torch.__version__ >= "2.16":
        yield
        return
    own = exported_program._override_composite_implicit_decomp
    _own_check()

    def overridden(callables: dict[Any, Any]) -> Any:
        return own({op: function for op, function in callables.items() if function is not _DECOMPOSITIONS.get(op)})

    with (
        mock.patch.object(utils, "_check_valid_to_preserve", _is_valid_to_preserve),
        mock.patch.object(decomp_utils, "_get_decomp_for_cia", _decomposition_of_composite),
        mock.patch.object(exported_program, "_override_composite_implicit_decomp", overridden),
    ):
        yield


_DECOMPOSITIONS: dict[Any, Any] = {}
"""The function that calls torch's own decomposition of a composite operator, by operator."""


def _decomposition_of_composite(op: Any) -> Any:
    """``torch._export.utils._get_decomp_for_cia``, with the same result for the same operator."""
    from torch._export.utils import _get_decomp_for_cia

    if torch._C.DispatchKey.CompositeImplicitAutograd in op.py_kernels:
        return _get_decomp_for_cia(op)
    if op not in _DECOMPOSITIONS:
        _DECOMPOSITIONS[op] = _get_decomp_for_cia(op)
    return _DECOMPOSITIONS[op]


def _is_valid_to_preserve(op: Any) -> bool:
    """``torch._export.utils._check_valid_to_preserve``."""
    # An operator can get its first kernel later.
    return _check_once(op, not hasattr(op, "_schema") or torch._C._dispatch_has_kernel(op.name()))


@functools.cache
def _check_once(op: Any, has_kernel: bool) -> bool:
    return bool(_own_check()(op))


@functools.cache
def _own_check() -> Any:
    """Torch's function; the first call is made before it is replaced."""
    from torch._export import utils

    return utils._check_valid_to_preserve


def quantized_operators() -> Any:
    """The operators that quantize and dequantize plain tensors; torch.onnx maps them once they are imported."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed
