"""Traces a Python function as a subgraph of the program that is being captured, for ``torch.cond`` and ``while_loop``.

``torch.cond`` traces its branches with Dynamo, which refuses much of the Python code that a non-strict export captures.
Here a branch is traced like the program around it. Each tensor from outside that the branch reads becomes an input of
the subgraph when it is first used, wherever the branch takes it from: a variable, ``self``, a list, a closure.

The internals of torch that this needs: ``proxy_tensor._build_proxy_for_sym_expr``, ``_sym_register``,
``_CURRENT_MAKE_FX_TRACER`` and its ``trace_subgraph`` (the tracer that ``torch.cond`` uses for its branches), the
``tensor_tracker`` and ``sympy_expr_tracker`` of a tracer, and its ``proxy_paths``, ``proxy_modules`` and
``attr_proxy_map``, ``track_tensor``, ``set_meta``, ``get_proxy_slot`` and ``disable_proxy_modes_tracing``;
``ShapeEnv._maybe_evaluate_static``; ``_guards.detect_fake_mode``; ``_disable_current_modes`` of
``torch.utils._python_dispatch``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, fx
from torch.fx import traceback as fx_traceback
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _python_dispatch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, IntTrueDiv, Max, Min, RoundToInt, ToFloat, TruncToInt

from opbridge.torch_graph.size_guards import forget_results

__all__ = [
    "Subgraph",
    "constant_of",
    "facts_of_one_path",
    "is_tracing",
    "is_unknown",
    "known_outside",
    "outside_capture",
    "run_subgraph",
    "symbols_outside",
    "symbols_tracked",
    "trace_subgraph",
    "traced_nodes",
    "tracer",
    "untracked",
]


@dataclasses.dataclass(frozen=True)
class Subgraph:
    """A function as a graph.

    Attributes:
        module: The graph. Its first inputs are the arguments, the others are ``inputs``.
        inputs: The tensors, sizes and constants from outside that the function reads.
        mutated: The tensors of ``inputs`` that the function writes into. The graph writes into copies, and returns them
            after the results of the function.
    """

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    mutated: tuple[Tensor, ...]


def is_tracing() -> bool:
    """Whether a program is being captured, so that subgraphs can be traced."""
    return _current() is not None


def tracer() -> Any:
    """What traces the program, or the branch, that is being captured, to be compared only; None if nothing is."""
    return _current()


def _current() -> Any:
    return proxy_tensor._CURRENT_MAKE_FX_TRACER


def constant_of(tensor: Tensor) -> Tensor | None:
    """The value of a tensor that torch knows during the capture (that of a Python number); None for any other."""
    slot = proxy_tensor.get_proxy_slot(tensor, _current().fx_tracer, None)
    return getattr(slot, "constant", None)


def is_unknown(condition: torch.SymBool, *, of_sizes: bool = False) -> bool:
    """Whether a condition depends on a number that is known only at run time.

    Args:
        condition: The condition.
        of_sizes: Whether a dynamic size of an input is such a number too.
    """
    if not (condition.node.expr.free_symbols if of_sizes else free_unbacked_symbols(condition)):
        return False
    # The opposite would be a part of the program, and of a branch that may not have the condition.
    env: Any = condition.node.shape_env
    with contextlib.suppress(TypeError):  # sympy's, of an equation of two conditions.
        return env._maybe_evaluate_static(condition.node.expr) is None
    return True


@contextlib.contextmanager
def facts_of_one_path() -> Iterator[None]:
    """Forget after the block what it stated about sizes: a branch that does not run, or a loop, states nothing."""
    env = _shape_env()
    if env is None:
        yield
        return
    ranges, axioms, replacements = dict(env.var_to_range), dict(env.axioms), dict(env.replacements)
    asserts = {symbol: list(stated) for symbol, stated in env.deferred_runtime_asserts.items()}
    try:
        yield
    finally:
        env.var_to_range.update(ranges)
        for symbol in ranges.keys() - env.var_to_val.keys():
            env.deferred_runtime_asserts[symbol] = asserts.get(symbol, [])
            if symbol in replacements:  # Looking one up also replaces what stands for it.
                env.replacements[symbol] = replacements[symbol]
            else:
                env.replacements.pop(symbol, None)
        env.axioms.clear()
        env.axioms.update(axioms)
        forget_results(env)


def _shape_env() -> Any:
    mode = torch._guards.detect_fake_mode()
    return None if mode is None else mode.shape_env


def untracked() -> contextlib.AbstractContextManager[Any]:
    """Compute with tensors without data inside the block; nothing becomes part of the captured program."""
    return proxy_tensor.disable_proxy_modes_tracing()


def outside_capture() -> contextlib.AbstractContextManager[Any]:
    """Compute with tensors that have data inside the block; nothing becomes part of the captured program."""
    return _python_dispatch._disable_current_modes()


def symbols_outside(values: Sequence[Any]) -> list[torch.SymInt]:
    """The symbols of these numbers and shapes that the program outside has a value for."""
    tracked = _current().fx_tracer.sympy_expr_tracker
    found = {}
    for value in values:
        for size in value.shape if isinstance(value, Tensor) else (value,):
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                found.update({symbol: tracked[symbol].value for symbol in _free(size) if symbol in tracked})
    return list(found.values())


def known_outside(size: Any) -> bool:
    """Whether the program outside can compute this size."""
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    return _free(size) <= symbols_tracked()


def symbols_tracked() -> frozenset[Any]:
    """The symbols that the program outside has a value for."""
    return frozenset(_current().fx_tracer.sympy_expr_tracker)


def traced_nodes() -> Iterable[fx.Node]:
    """The nodes so far of the graph that is being traced."""
    return _current().fx_tracer.graph.nodes  # type: ignore[no-any-return]


def _free(size: Any) -> set[Any]:
    return set(size.node.expr.free_symbols)


class _Lifting:
    """The tensors of a subgraph's tracer; a tensor of the program outside becomes an input when it is looked up."""

    def __init__(self, tracer: Any, outside: Any, lift: Callable[[Tensor], fx.Proxy]) -> None:
        self._own = tracer.tensor_tracker
        self._tracer = tracer
        self._outside = outside
        self._lift = lift

    def __contains__(self, tensor: Tensor) -> bool:
        return self.get(tensor) is not None

    def __getitem__(self, tensor: Tensor) -> Any:
        found = self.get(tensor)
        if found is None:
            raise KeyError(tensor)
        return found

    def __setitem__(self, tensor: Tensor, value: Any) -> None:
        self._own[tensor] = value

    def items(self) -> Any:
        """The tensors that the subgraph has already; torch 2.13 lists them."""
        return self._own.items()

    def get(self, tensor: Tensor, default: Any = None) -> Any:
        if tensor not in self._own:
            outside = self._outside.tensor_tracker.get(tensor)
            if outside is None:
                return default
            proxy = self._lift(tensor)
            self._own[tensor] = proxy_tensor._ProxyTensor(proxy, outside.constant)
            proxy_tensor.track_tensor(tensor, proxy, constant=outside.constant, tracer=self._tracer)
        return self._own[tensor]


def _folded(function: Callable[[Any, Any], Any], *values: Any) -> Any:
    return functools.reduce(function, values)


_CONVERSIONS: dict[Any, Any] = {
    IntTrueDiv: operator.truediv,
    ToFloat: torch.sym_float,
    TruncToInt: math.trunc,
    CeilToInt: math.ceil,
    FloorToInt: math.floor,
    RoundToInt: round,
    sympy.Mul: functools.partial(_folded, operator.mul),
    Max: functools.partial(_folded, torch.sym_max),
    Min: functools.partial(_folded, torch.sym_min),
}
"""Functions of sizes that torch can't compute again from their arguments inside a subgraph, or not from three."""

_OF_SEVERAL: dict[Any, Any] = {sympy.Mul: operator.mul, Max: torch.sym_max, Min: torch.sym_min}
_own_proxy_for = proxy_tensor._build_proxy_for_sym_expr


def _proxy_for(tracer: Any, expression: Any, out: Any = None) -> Any:
    """As torch's function, which makes one node of a product, a minimum or a maximum of any number of values."""
    operation = _OF_SEVERAL.get(getattr(expression, "func", None))
    if out is None or operation is None or expression in tracer.sympy_expr_tracker:
        return _own_proxy_for(tracer, expression, out)
    values = [_own_proxy_for(tracer, part) for part in expression.args]
    if any(value is None for value in values):
        return None
    proxy_tensor._sym_register(tracer, operation, (functools.reduce(operation, values[:-1]), values[-1]), out)
    return out


class _LiftingNumbers:
    """The dynamic numbers of a subgraph's tracer; one that it can't compute from its inputs becomes an input."""

    def __init__(self, tracer: Any, outside: Any, lift: Callable[[Any], fx.Proxy]) -> None:
        self._own = tracer.symnode_tracker
        self._tracer = tracer
        self._outside = outside
        self._lift = lift

    def __contains__(self, number: Any) -> bool:
        return number in self._own

    def __getitem__(self, number: Any) -> Any:
        return self._own[number]

    def __setitem__(self, number: Any, value: Any) -> None:
        self._own[number] = value

    def get(self, number: Any, default: Any = None) -> Any:
        if number not in self._own and number in self._outside.symnode_tracker:
            expression = number.node.expr
            known = expression in self._tracer.sympy_expr_tracker
            if not known and proxy_tensor._build_proxy_for_sym_expr(self._tracer, expression) is None:
                proxy_tensor.set_proxy_slot(number, self._tracer, proxy_tensor.Thunk(lambda: self._lift(number)))
        return self._own.get(number, default)


def trace_subgraph(function: Callable[..., Sequence[Any]], arguments: Sequence[Tensor] = ()) -> Subgraph:
    """Trace a function apart from the program that is being captured.

    Args:
        function: Takes the arguments, and returns tensors and dynamic numbers. It may use anything outside.
        arguments: Tensors that only exist inside the subgraph, made under :func:`untracked`.
    """
    outside = _current()
    proxy_tensor._sympy_handlers().update(_CONVERSIONS)
    proxy_tensor._build_proxy_for_sym_expr = _proxy_for  # type: ignore[assignment]
    symbols = [tracked.value for tracked in outside.fx_tracer.sympy_expr_tracker.values()]
    lifted: dict[fx.Node, tuple[Any, int]] = {}

    def run(*values: Any) -> tuple[Any, ...]:
        tracer = _current().fx_tracer

        def lift(value: Any) -> fx.Proxy:
            with _among_the_inputs(tracer.graph):
                proxy = tracer.create_proxy("placeholder", f"outer_{len(lifted)}", (), {})
            proxy_tensor.set_meta(proxy, value)
            lifted[proxy.node] = (value, getattr(value, "_version", 0))
            return proxy

        tracer.tensor_tracker = _Lifting(tracer, outside.fx_tracer, lift)
        tracer.symnode_tracker = _LiftingNumbers(tracer, outside.fx_tracer, lift)
        for paths in ("proxy_paths", "proxy_modules", "attr_proxy_map"):  # Of the modules, if one has two names.
            if hasattr(outside.fx_tracer, paths):  # Not if a part without modules is traced, for gradients for example.
                setattr(tracer, paths, getattr(outside.fx_tracer, paths))
        return tuple(function(*values[len(symbols) :]))

    versions = [argument._version for argument in arguments]
    with untracked(), facts_of_one_path():
        module = outside.trace_subgraph(run, *symbols, *arguments)
    inputs = [node for node in module.graph.nodes if node.op == "placeholder" and node not in lifted]
    own = inputs[len(symbols) :]
    values: dict[fx.Node, Any] = dict(zip(inputs, symbols, strict=False))
    values.update({node: tensor for node, (tensor, _) in lifted.items()})
    module.graph.eliminate_dead_code()
    values.update(_constants_as_inputs(module))
    changed = [node for node, one, version in zip(own, arguments, versions, strict=True) if one._version != version]
    mutated = [node for node, (value, version) in lifted.items() if getattr(value, "_version", 0) != version]
    _write_into_copies(module.graph, changed, mutated)
    _sizes_of_inputs(module.graph, values)
    kept = [node for node in module.graph.find_nodes(op="placeholder") if node in values and node.users]
    for node in values.keys() - set(kept):
        module.graph.erase_node(node)
    _sort_inputs(module.graph, [*own, *kept])
    module.recompile()
    return Subgraph(module, tuple(values[node] for node in kept), tuple(lifted[node][0] for node in mutated))


@contextlib.contextmanager
def _among_the_inputs(graph: fx.Graph) -> Iterator[None]:
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    with graph.inserting_before(first) if first is not None else contextlib.nullcontext():
        yield


def _constants_as_inputs(module: fx.GraphModule) -> dict[fx.Node, Tensor]:
    """Make inputs of the tensors with data that the graph has as attributes; torch.export keeps them outside only."""
    found: dict[fx.Node, Tensor] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(str(node.target))(module)
        if isinstance(value, Tensor):
            with _among_the_inputs(module.graph):
                new = module.graph.placeholder(f"constant_{len(found)}")
            new.meta = dict(node.meta)
            node.replace_all_uses_with(new)
            module.graph.erase_node(node)
            found[new] = value
    return found


def _write_into_copies(graph: fx.Graph, arguments: Sequence[fx.Node], mutated: Sequence[fx.Node]) -> None:
    copies = {}
    for node in (*arguments, *mutated):
        with _among_the_inputs(graph):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy, delete_user_cb=functools.partial(operator.is_not, copy))
        copies[node] = copy
    if mutated:
        output = graph.output_node()
        output.args = ((*output.args[0], *(copies[node] for node in mutated)),)  # type: ignore[misc]


def _sizes_of_inputs(graph: fx.Graph, values: dict[fx.Node, Any]) -> None:
    """Read sizes from the tensors that have them, where an input is a size."""
    tensors = [node for node in graph.find_nodes(op="placeholder") if isinstance(node.meta.get("val"), Tensor)]
    for node, value in values.items():
        if isinstance(value, torch.SymInt) and node.users:
            for tensor in tensors if tensors and node.users else ():
                sizes = [str(size) for size in tensor.meta["val"].shape]
                if (tensor.users or tensor not in values) and str(value) in sizes:
                    with _among_the_inputs(graph):
                        size = graph.call_function(torch.ops.aten.sym_size.int, (tensor, sizes.index(str(value))))
                    size.meta["val"] = value
                    node.replace_all_uses_with(size)
                    break


def _sort_inputs(graph: fx.Graph, order: Sequence[fx.Node]) -> None:
    first = next(iter(graph.nodes))
    for node in order:
        if node is not first:
            first.prepend(node)
        else:
            first = node.next


def run_subgraph(module: fx.GraphModule, *inputs: Any) -> tuple[Any, ...]:
    """Run a traced function again, as a part of the program that is being captured; source lines are kept."""
    with fx_traceback.preserve_node_meta():
        results: tuple[Any, ...] = _Running(module).run(*inputs)
    return results


class _Running(fx.Interpreter):
    """Runs a graph again; what an inner loop or branch states about sizes does not hold outside it."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.item.default:
            args = (args[0].clone(),)  # torch can't read a number at an offset that is a dynamic number.
        with facts_of_one_path() if isinstance(target, torch._ops.HigherOrderOperator) else contextlib.nullcontext():
            return super().call_function(target, args, kwargs)
