"""Runs the captured graph in its own dtype and in float64, node by node.

The float64 run takes its discrete decisions (argmax, comparisons, floor, random draws) from the run in the model's own
dtype. Otherwise the two runs could decide a near tie differently, and then would not be the same computation.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.node import map_aggregate, map_arg

from opbridge.proof.verify.captured_graph_inner import HIGHER_ORDER, Pair, joined
from opbridge.proof.verify.captured_run import Decision, Observer, PairRun, Resumption, Watch
from opbridge.proof.verify.float64_call import (
    SOLVERS,
    base_name,
    has_jump,
    low_precision,
    merge_decisions,
    tensors,
    widen,
    widen_call,
)
from opbridge.torch_graph.internals import end_vmap
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.targets import in_any_layout
from opbridge.torch_graph.vmap_regions import nesting_change

__all__ = ["CapturedGraph"]


class CapturedGraph:
    """The captured graph, ready to run. Neither the program nor its tensors are changed by a run.

    Args:
        program: The captured program.
        positions: The positions of the flattened outputs that are compared; by default all.
        check_guards: Whether to refuse sizes that the program's guards exclude. Without the check, the results there
            must be compared with those of the user's module.

    Attributes:
        module: The program as a module.
        positions: The positions of the flattened outputs that are compared.
        output_nodes: The nodes of these outputs.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        positions: Sequence[int] | None = None,
        *,
        check_guards: bool = True,
    ) -> None:
        self.module = program.module(check_guards=check_guards)
        output = next(node for node in self.module.graph.nodes if node.op == "output")
        flat = output.args[0] if isinstance(output.args[0], tuple | list) else (output.args[0],)
        self.positions = tuple(range(len(flat)) if positions is None else positions)
        self.output_nodes = [flat[position] for position in self.positions]
        self._mutates = any(
            _is_mutable(node.target)
            for part in self.module.modules()
            if isinstance(part, torch.fx.GraphModule)
            for node in part.graph.nodes
        )

    def run(
        self,
        inputs: Sequence[Any],
        *,
        seed: int = 0,
        observer: Observer | None = None,
        float64: bool = True,
        watch: Watch | None = None,
        perturb: Callable[[torch.Tensor], torch.Tensor] | None = None,
        perturb_integers: Callable[[torch.Tensor], torch.Tensor] | None = None,
        resumption: Resumption | None = None,
    ) -> PairRun:
        """Run the graph in the model's dtype and in float64.

        Args:
            inputs: The flattened user inputs, constants included, in the program's order.
            seed: The seed of torch's random numbers.
            observer: Receives every decision.
            float64: Whether to run in float64 too; if not, the float64 results are those in the model's dtype.
            watch: Receives the value of every node as it is computed: the node's name, its value in the model's dtype
                and in float64, and whether it depends on random draws. A later node may change a value in place.
            perturb: Returns the tensor that replaces each weight and constant, and in the run in the model's dtype each
                argument of a solver.
            perturb_integers: Returns the tensor that replaces each floating-point result of an operator whose tensors
                are all integers.
            resumption: Where the runs that follow begin. The first run records the values there; the others need the
                same inputs, and the same decisions until there. Their ``longest_sum`` and ``without_float64`` are of
                what they run.

        Raises:
            Exception: Any exception that the graph raises for inputs that it does not accept.
        """
        start = time.perf_counter()
        with own_random_numbers(seed), torch.no_grad():
            walk = _Walk(self._mutates, observer, float64, watch, perturb, perturb_integers, resumption)
            copied = [value.clone() if self._mutates and isinstance(value, torch.Tensor) else value for value in inputs]
            try:
                results = walk.graph(self.module, [Pair(value, walk.widened(value)) for value in copied], "")
            finally:
                end_vmap(walk.depth)
        chosen = [results[position] for position in self.positions]
        return PairRun(
            own=[pair.own for pair in chosen],
            float64=[pair.float64_value for pair in chosen],
            random=[pair.random for pair in chosen],
            without_float64=tuple(sorted(walk.without_float64)),
            longest_sum=walk.longest_sum,
            seconds=time.perf_counter() - start,
            runs={name: walk.runs[part] for name, part in self.module.named_modules() if part in walk.runs},
        )

    def node(self, name: str) -> torch.fx.Node | None:
        """The node of this name in the graph itself; None if there is none."""
        return next((node for node in self.module.graph.nodes if node.name == name), None)

    def upstream(self, index: int) -> frozenset[str]:
        """Names of the nodes that output number ``index`` depends on."""
        seen: set[torch.fx.Node] = set()
        pending = [self.output_nodes[index]]
        while pending:
            node = pending.pop()
            if isinstance(node, torch.fx.Node) and node not in seen:
                seen.add(node)
                pending += node.all_input_nodes
        return frozenset(node.name for node in seen)


def _is_mutable(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and "detach_" not in target.name()


def _is_uninitialized(target: Any) -> bool:
    """Whether the elements of the result may be anything, also NaN; in the runs they are 0."""
    is_of_torch = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return is_of_torch and base_name(target).startswith(("empty", "new_empty"))


def _attribute(module: torch.nn.Module, path: str) -> Any:
    return operator.attrgetter(path)(module)


class _Walk:
    """One run over the graph and the graphs inside it."""

    def __init__(
        self,
        mutates: bool,
        observer: Observer | None,
        float64: bool,
        watch: Watch | None = None,
        perturb: Callable[[torch.Tensor], torch.Tensor] | None = None,
        perturb_integers: Callable[[torch.Tensor], torch.Tensor] | None = None,
        resumption: Resumption | None = None,
    ) -> None:
        self.mutates = mutates
        self.resumption = resumption
        self.drew = False
        self.perturb = perturb
        self.perturb_integers = perturb_integers
        self.observer = observer
        self.float64 = float64
        self.watch = watch
        self.without_float64: set[str] = set()
        self.longest_sum = 1
        self.depth = 0
        self.runs: Counter[torch.nn.Module] = Counter()
        self.seen: dict[str, int] = {}
        self.state: dict[int, Pair] = {}

    def cannot_resume(self) -> bool:
        """Whether another run may have other values before the node that is next."""
        return self.mutates or self.drew or self.depth > 0

    def widened(self, value: Any) -> Any:
        """``value`` for the float64 run: a copy if a node could change it in place."""
        if not self.float64:
            return value
        float64 = widen(value)
        return float64.clone() if self.mutates and float64 is value and isinstance(value, torch.Tensor) else float64

    def graph(self, module: torch.fx.GraphModule, inputs: Sequence[Pair], path: str) -> list[Pair]:
        """The results of one graph module, flattened by one level."""
        self.runs[module] += 1
        values: dict[torch.fx.Node, Pair] = {}
        last_use: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in module.graph.nodes:
            for used in node.all_input_nodes:
                last_use[used] = node
        remaining = iter(inputs)
        nodes = list(module.graph.nodes)
        resumption = None if path else self.resumption
        if resumption is not None and resumption.values is not None:
            values.update(resumption.values)
            nodes = nodes[[node.name for node in nodes].index(resumption.node) :]
        for node in nodes:
            if resumption is not None and node.name == resumption.node and not self.cannot_resume():
                resumption.values = dict(values)
            if node.op == "output":
                flat = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
                return [values[item] if isinstance(item, torch.fx.Node) else Pair(item, item) for item in flat]
            pair = next(remaining) if node.op == "placeholder" else self.node(module, node, values, path)
            values[node] = pair if node in last_use else Pair(None)
            self.depth += nesting_change(node)
            if self.watch is not None and not path and not self.depth and node.op == "call_function":
                self.watch(node.name, pair.own, pair.float64_value, pair.random)
            for used in node.all_input_nodes:
                if last_use[used] is node:
                    del values[used]
        return []

    def node(
        self, module: torch.fx.GraphModule, node: torch.fx.Node, values: dict[torch.fx.Node, Pair], path: str
    ) -> Pair:
        """The value of one node."""
        if node.op == "get_attr":
            return self.attribute(_attribute(module, str(node.target)))
        args, kwargs = _resolve(node, lambda used: values[used].own)
        target: Any = in_any_layout(node.target)
        if node.op == "call_module":
            return Pair(_attribute(module, str(target))(*args, **kwargs))
        random = any(values[used].random for used in node.all_input_nodes)
        higher_order = HIGHER_ORDER.get(getattr(target, "_name", None) or "")
        if higher_order is not None:
            pairs, _ = _resolve(node, lambda used: values[used])
            return joined(higher_order(self, f"{path}{node.name}/", *pairs), random)
        float64_args, float64_kwargs = (
            _resolve(node, lambda used: values[used].float64_value) if self.float64 else (args, kwargs)
        )
        pair = self.call(target, path + node.name, args, kwargs, float64_args, float64_kwargs)
        pair.random |= random
        return pair

    def attribute(self, value: Any) -> Pair:
        """A parameter, buffer, constant or inner graph."""
        if isinstance(value, torch.nn.Parameter) and self.perturb is None:
            return Pair(value, lazy=self.float64, float64=value)
        if not isinstance(value, torch.Tensor):
            return Pair(value, value)
        if id(value) not in self.state:
            own = value if self.perturb is None else self.perturb(value)
            own = own.clone() if self.mutates and own is value else own
            self.state[id(value)] = Pair(own, self.widened(own))
        return self.state[id(value)]

    def call(self, target: Any, key: str, args: Any, kwargs: Any, float64_args: Any, float64_kwargs: Any) -> Pair:
        """Call an operator in both runs."""
        perturb = self.perturb if base_name(target) in SOLVERS else None
        if perturb is not None:
            args, kwargs = map_aggregate((args, kwargs), lambda v: perturb(v) if isinstance(v, torch.Tensor) else v)
        with _draws(target) as drew:
            own = target(*args, **kwargs)
        self.drew |= drew()
        if _is_uninitialized(target):
            own.zero_()
            return Pair(own, self.widened_all(own))
        if not self.float64:
            return Pair(own, own, random=drew())
        if drew():
            return Pair(own, self.widened_all(own), random=True)
        if not isinstance(target, torch._ops.OpOverload):
            return Pair(own, self.plain(target, own, float64_args, float64_kwargs))
        inputs = tensors((args, kwargs))
        floating_in = any(low_precision(t.dtype) or t.dtype.is_floating_point for t in inputs)
        if not floating_in and not any(low_precision(t.dtype) for t in tensors(own)):
            # Where tensors are changed in place, a view has to be one of the float64 run's own tensor.
            return Pair(own, target(*float64_args, **float64_kwargs) if self.mutates else self.widened_all(own))
        if own is None and not _is_mutable(target):
            return Pair(None)
        self.longest_sum = max(self.longest_sum, _longest_sum(inputs, tensors(own)))
        float64, without_float64 = widen_call(target, (args, kwargs), (float64_args, float64_kwargs), own)
        if without_float64:
            self.without_float64.add(target.name().split(".")[0])
        if self.perturb_integers and not floating_in and any(t.dtype is not torch.bool for t in inputs):
            return self.perturbed(own, float64)
        discrete = any(not t.dtype.is_floating_point and not t.dtype.is_complex for t in tensors(own))
        scalar = isinstance(own, bool | int)
        if (floating_in and (discrete or scalar)) or has_jump(target):
            return self.decided(
                Decision(self.occurrence(key), target, args, kwargs, float64_args, float64_kwargs, own, float64)
            )
        return Pair(own, float64)

    def perturbed(self, own: Any, float64: Any) -> Pair:
        """A tensor perturbed in both runs by the same amount; any other result unchanged."""
        if self.perturb_integers is None or not isinstance(own, torch.Tensor):
            return Pair(own, float64)
        other = self.perturb_integers(own)
        return Pair(other, float64 + (other.double() - own.double()))

    def decided(self, decision: Decision) -> Pair:
        """The result of a decision: that of the run in the model's dtype, unless the observer replaces it."""
        natural = decision.float64
        decision.float64 = merge_decisions(
            decision.target, decision.own, natural, decision.float64_args, decision.float64_kwargs
        )
        if _is_mutable(decision.target) and isinstance(natural, torch.Tensor):
            return Pair(decision.own, natural.copy_(decision.float64))
        if self.mutates:
            decision.float64 = map_aggregate(
                decision.float64, lambda v: v.clone() if isinstance(v, torch.Tensor) else v
            )
        if self.observer is not None and not self.depth:
            return Pair(*self.observer.decide(decision))
        return Pair(decision.own, decision.float64)

    def occurrence(self, key: str) -> str:
        """``key``, numbered from its second occurrence on."""
        count = self.seen.get(key, 0)
        self.seen[key] = count + 1
        return f"{key}#{count}" if count else key

    def widened_all(self, value: Any) -> Any:
        """Every tensor of a nested result widened."""
        return map_aggregate(value, self.widened)

    def plain(self, target: Callable[..., Any], own: Any, float64_args: Any, float64_kwargs: Any) -> Any:
        """A Python function (getitem, sizes, math) or a higher-order operator without a rule here, in float64."""
        if isinstance(target, torch._ops.HigherOrderOperator):
            self.without_float64.add(target._name)
            return self.widened_all(own)
        if isinstance(own, torch.Tensor | tuple | list | float):
            return target(*float64_args, **float64_kwargs)
        return own


def _resolve(node: torch.fx.Node, value: Callable[[torch.fx.Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args: Any = map_arg(node.args, value)
    kwargs: Any = map_arg(node.kwargs, value)
    return tuple(args), dict(kwargs)


@contextlib.contextmanager
def _draws(target: Any) -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether the call drew random numbers; dropout in evaluation mode does not."""
    known = isinstance(target, torch._ops.OpOverload) and target.namespace in ("aten", "prims")
    if target is operator.getitem or (known and torch.Tag.nondeterministic_seeded not in target.tags):
        yield lambda: False
        return
    before = torch.get_rng_state()
    yield lambda: not torch.equal(before, torch.get_rng_state())


def _longest_sum(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> int:
    """The largest number of terms that a node may have added: the length of an axis, or all reduced elements."""
    smallest = max(1, max((t.numel() for t in outputs), default=1))
    return max((max(t.numel() // smallest, *t.shape, 1) for t in inputs if t.ndim), default=1)
