"""The internals of torch that opbridge uses, with reasons and guards.

``reuse.py``, ``capture_faults.py``, ``size_conditions.py``, ``size_guards.py``, ``mutations.py``, ``recurrent.py``,
``gradients.py``, ``example_values.py`` and ``custom_ops.py`` have more.
``tests/torch_graph/test_torch_internals.py`` names each of them, so that it fails first if a torch release moves one.

* ``torch.onnx._internal.exporter._torchlib`` and ``onnxscript._framework_apis``: list the torch operators that
  torch.onnx maps, with their lowest opsets. There is no public list.
* ``torch._decomp.decomposition_table``, ``OpOverload._can_decompose``: have the decompositions that torch.onnx uses in
  addition to ``torch.export.default_decompositions()``.
* ``torch.fx.experimental._config.patch`` and ``patch_dynamic_shape_rnn_decompositions``: apply the settings with which
  torch.onnx captures and decomposes a model, so that opbridge's single decomposition results in the same graph.
* ``ShapeEnv.ignore_fresh_unbacked_symbols``: torch.onnx runs shape functions, and leaves their new symbols pending.
* ``torch._library.fake_impl.FakeImplCtx.create_unbacked_symint``: torchvision's nms assumes that two boxes remain.
* ``torch._subclasses.fake_tensor.FakeTensorMode``: runs a captured program on tensors without data. (The public
  alternative, the ``meta`` device, can't run a program with CPU constants.)
* ``torch.onnx._internal.exporter._building.OpRecorder.eval``: torch.onnx writes a Python number in float32 before
  casting it to its final type, so a float64 graph would lose half of its digits.
* ``ShapeEnv._set_replacement``, ``_log_guard`` and ``var_to_sources``: show which line of a model specializes a dynamic
  size or restricts it. torch's error names only the size, and most restrictions are no error.
* ``FakeTensor``, ``fake_tensor.unset_fake_temporarily``, ``free_unbacked_symbols`` and the nodes
  of a ``SymInt``: serve to run the ``forward`` of an autograd.Function as its shape function.
* ``torch.onnx._internal.exporter._flags``: makes ``torch.onnx.is_in_onnx_export()`` true, as while torch.onnx captures.
  Older models use it to choose between an operator's ONNX form and its ordinary form.
* ``torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex``: lets the functions that a model passes to
  ``flex_attention`` index a tensor by a position under ``torch.vmap``.
* ``torch.onnx._internal.torchscript_exporter``: contains the former contents of ``torch.onnx.symbolic_helper`` and
  similar modules.
* ``torch.ao.quantization.fx._decomposed``: defines the operators of ``torch.ops.quantized_decomposed``.
* ``torch._functorch.predispatch``: ends the regions of ``torch.vmap`` in a captured graph whose run failed inside one.
* ``torch._dynamo``: records Python's builtins when it is imported, so this must happen before a capture replaces some.
  Its ``config`` keeps the numbers that a loop uses constant in a later export.
* ``torch.onnx._constants.ONNX_DEFAULT_OPSET``: is the default opset.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from opbridge.torch_graph.capture_faults import correcting_capture, rounding_proxies
from opbridge.torch_graph.mutations import without_overlap_checks
from opbridge.torch_graph.recurrent import shapes_of_recurrent_layers
from opbridge.torch_graph.reuse import decomposing_quickly, mappings_of_onnxscript, reusing_operator_list
from opbridge.torch_graph.size_conditions import deciding_conditions
from opbridge.torch_graph.size_guards import SizeGuard, current_path, dimensions_of, guard_at
from opbridge.torch_graph.sources import FixedSize, frames_of_stack
from opbridge.torch_graph.targets import target_key

__all__ = [
    "capturing",
    "decomposing",
    "decomposition_table",
    "default_opset",
    "end_vmap",
    "example_of",
    "exclusively",
    "exporting_to_onnx",
    "forgetting_new_sizes",
    "has_way",
    "indexing_by_position",
    "is_fake",
    "mapped_targets",
    "noting_sizes",
    "old_exporter",
    "outside_fake_tensors",
    "quantized_operators",
    "symbols_of",
    "takes",
    "translating",
]


@functools.cache
def mapped_targets(complex_inputs: bool = False) -> dict[Any, int]:
    """The torch operators that torch.onnx maps, with the lowest opset of each mapping.

    Args:
        complex_inputs: Whether to list the mappings for complex tensors instead of those for real tensors.

    Returns:
        The opset that introduced each mapping, by :func:`target_key` of the operator (or by the Python callable).
    """
    from torch.onnx._internal.exporter._torchlib import _torchlib_registry

    lowest: dict[Any, int] = {}
    for meta in _torchlib_registry.get_torchlib_ops():
        if meta.is_complex == complex_inputs:
            key = target_key(meta.fx_target)
            lowest[key] = min(meta.opset_introduced, lowest.get(key, meta.opset_introduced))
    for function in mappings_of_onnxscript():
        if function.is_complex == complex_inputs:
            lowest[_key_of_name(function.qualified_name)] = 18
    return lowest


def _key_of_name(name: str) -> Any:
    namespace, _, operator_name = name.partition("::")
    if namespace == "_operator":
        return getattr(operator, operator_name)
    if namespace == "math":
        return getattr(math, operator_name)
    return name if "." in operator_name else f"{name}.default"


def decomposition_table(keep: Collection[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions except those of the operators to keep.

    Args:
        keep: :func:`target_key` of the operators that must not be decomposed.
    """
    table: dict[Any, Callable[..., Any]] = {}
    with exclusively, reusing_operator_list():
        default = torch.export.default_decompositions().items()
    for overload, function in itertools.chain(default, torch._decomp.decomposition_table.items()):
        if isinstance(overload, torch._ops.OpOverload) and overload not in table and target_key(overload) not in keep:
            table[overload] = function
    return table


def has_way(overload: torch._ops.OpOverload) -> bool:
    """Whether torch has a mapping to ONNX or a decomposition for an operator, correct or not."""
    return (
        target_key(overload) in mapped_targets()
        or overload in torch._decomp.decomposition_table
        or overload._can_decompose()
    )


@contextlib.contextmanager
def capturing(dynamic_shapes: Any) -> Iterator[None]:
    """Apply the settings with which torch.onnx captures a model.

    A dynamic dimension whose example size is 0 or 1 stays dynamic, and recurrent layers with a dynamic length become
    loops instead of being unrolled.
    """
    importlib.import_module("torch._dynamo")
    with _settings(dynamic_shapes), correcting_capture():
        yield


@contextlib.contextmanager
def decomposing(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Apply the settings with which torch.onnx decomposes ``program``."""
    with _settings(program.range_constraints), decomposing_quickly(), rounding_proxies():
        yield


def _strategies() -> Any:
    from torch.onnx._internal.exporter import _capture_strategies

    return _capture_strategies


exclusively = threading.RLock()
"""A lock for operations of torch on graphs, because torch's settings and its current node are global to the process."""


@contextlib.contextmanager
def _settings(dynamic: Any) -> Iterator[None]:
    from torch.fx.experimental import _config

    strategies = _strategies()
    recurrent = getattr(strategies, "patch_dynamic_shape_rnn_decompositions", None)
    recurrent = recurrent or strategies._patch_dynamic_shape_rnn_decompositions
    settings = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    # Otherwise a number that a loop uses becomes an argument if it was another one in an earlier export.
    static = importlib.import_module("torch._dynamo.config").patch(automatic_dynamic_shapes=False)
    shapes = shapes_of_recurrent_layers() if dynamic else contextlib.nullcontext()
    decided = deciding_conditions() if dynamic else contextlib.nullcontext()
    with (
        exclusively,
        settings,
        static,
        recurrent(dynamic),
        shapes,
        decided,
        _sizes_from_zero(),
        without_overlap_checks(),
        reusing_operator_list(),
    ):
        yield


@contextlib.contextmanager
def _sizes_from_zero() -> Iterator[None]:
    """Let sizes created by shape functions through torch's old interface be 0 or 1, which this interface rules out."""
    from torch._library.fake_impl import FakeImplCtx

    before = FakeImplCtx.create_unbacked_symint
    FakeImplCtx.create_unbacked_symint = FakeImplCtx.new_dynamic_size  # type: ignore[method-assign]
    try:
        yield
    finally:
        FakeImplCtx.create_unbacked_symint = before  # type: ignore[method-assign]


@contextlib.contextmanager
def translating(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Apply the settings with which torch.onnx may run the shape functions of ``program`` again.

    Otherwise, the next decomposition would fail because the sizes that they created do not occur in the results.
    """
    modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in program.graph.nodes)
    environment = next((mode.shape_env for mode in modes if mode is not None), None)
    with (
        exclusively,
        reusing_operator_list(),
        shapes_of_recurrent_layers(),
        _all_digits_of_numbers(),
        environment.ignore_fresh_unbacked_symbols() if environment is not None else contextlib.nullcontext(),
    ):
        yield


@contextlib.contextmanager
def _all_digits_of_numbers() -> Iterator[None]:
    """Write numbers that a mapping of torch.onnx casts to the type of a tensor in float64 before the cast."""
    import onnx_ir as ir
    from torch.onnx._internal.exporter import _building

    own = _building.OpRecorder.eval

    def evaluate(recorder: Any, schema: Any, args: Any, kwargs: Any) -> Any:
        if schema.name in ("Cast", "CastLike") and args and type(args[0]) is float:
            number = recorder.opset.Constant(value=ir.tensor(args[0], dtype=ir.DataType.DOUBLE))
            args = (number, *args[1:])
        return own(recorder, schema, args, kwargs)

    _building.OpRecorder.eval = evaluate  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        _building.OpRecorder.eval = own  # type: ignore[method-assign]


def takes(module: torch.nn.Module, args: tuple[Any, ...]) -> bool:
    """Whether a captured program is valid for inputs of these sizes, according to torch's guards.

    Args:
        module: ``ExportedProgram.module()``.
        args: The inputs; the contents of tensors are not used.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
    try:
        with mode, torch.no_grad():
            module(*fakes)
    except Exception:  # A failed guard is an AssertionError; an operator that refuses the sizes may raise any error.
        return False
    return True


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, like the tensors of a model during its capture."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


@contextlib.contextmanager
def outside_fake_tensors() -> Iterator[None]:
    """Allocate memory for new tensors inside the shape function of an operator."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        yield


@contextlib.contextmanager
def forgetting_new_sizes(values: Sequence[Any]) -> Iterator[None]:
    """Allow data-dependent sizes that are created inside the block and do not occur in the results.

    Args:
        values: The fake tensors and numbers that the block uses.
    """
    nodes = (value if isinstance(value, torch.Tensor) else getattr(value, "node", None) for value in values)
    environments = (getattr(getattr(node, "fake_mode", node), "shape_env", None) for node in nodes)
    environment = next((found for found in environments if found is not None), None)
    with environment.ignore_fresh_unbacked_symbols() if environment is not None else contextlib.nullcontext():
        yield


def symbols_of(values: Sequence[Any]) -> set[Any]:
    """The symbols without a value (data-dependent sizes) in the sizes of tensors and in dynamic numbers."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    found: set[Any] = set()
    for value in values:
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                found |= set(free_unbacked_symbols(size))
    return found


def example_of(value: Any) -> Any:
    """The example value of a dynamic number, or 2 if it depends on data; any other value unchanged."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    return value.node.hint if value.node.has_hint() else value.node.pytype(2)


@contextlib.contextmanager
def noting_sizes(fixed: list[FixedSize], guards: list[SizeGuard]) -> Iterator[None]:
    """Record what torch assumes about dynamic sizes during a capture, and at which lines.

    Args:
        fixed: A list to which sizes that are specialized to a number are appended.
        guards: A list to which the conditions are appended under which the captured program is valid.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    replace, log = ShapeEnv._set_replacement, ShapeEnv._log_guard

    def noting_replace(env: Any, symbol: Any, target: Any, message: str) -> None:
        if current_path() and dimensions_of(env, symbol):
            return  # A branch requires it, not the program.
        was_fixed = env.replacements.get(symbol) == target
        replace(env, symbol, target, message)
        if target.is_Integer and not was_fixed and env.replacements.get(symbol) == target:
            fixed.append(FixedSize(dimensions_of(env, symbol), int(target), frames_of_stack()))

    def noting_log(env: Any, prefix: str, condition: Any, forcing_spec: bool) -> None:
        log(env, prefix, condition, forcing_spec)
        if prefix == "eval":  # Other prefixes: guards that torch drops, and checks at run time.
            free = condition.free_symbols.union(*(one.free_symbols for one in current_path()))
            symbols = {symbol: dimensions_of(env, symbol) for symbol in free}
            guards.append(guard_at(condition, symbols))

    ShapeEnv._set_replacement = noting_replace  # type: ignore[method-assign, assignment]
    ShapeEnv._log_guard = noting_log  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._set_replacement = replace  # type: ignore[method-assign]
        ShapeEnv._log_guard = log  # type: ignore[method-assign]


@contextlib.contextmanager
def exporting_to_onnx() -> Iterator[None]:
    """Make ``torch.onnx.is_in_onnx_export()`` true, as during a capture by torch.onnx."""
    from torch.onnx._internal.exporter import _flags

    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


@contextlib.contextmanager
def indexing_by_position() -> Iterator[None]:
    """Let ``tensor[index]`` take an index that ``torch.vmap`` maps, as in the functions given to ``flex_attention``."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with TransformGetItemToIndex():
        yield


def default_opset() -> int:
    """The default opset of ``torch.onnx.export``."""
    from torch.onnx import _constants

    return int(_constants.ONNX_DEFAULT_OPSET)


@functools.cache
def old_exporter(name: str) -> Any:
    """A module of torch's TorchScript exporter by name, such as ``"symbolic_helper"``; None if it does not exist."""
    try:
        return importlib.import_module(f"torch.onnx._internal.torchscript_exporter.{name}")
    except ImportError:
        return None


def end_vmap(depth: int) -> None:
    """End regions that an exception has left open; otherwise all later calls of ``torch.func`` run inside them."""
    from torch._functorch import predispatch

    for _ in range(depth):
        predispatch._vmap_decrement_nesting()


def quantized_operators() -> Any:
    """``torch.ops.quantized_decomposed`` with its operators."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed
