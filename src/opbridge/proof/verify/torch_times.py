"""Measures PyTorch's time for each call of a captured graph."""

from __future__ import annotations

import collections
import operator
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from opbridge.proof.verify.timing import CapturedCall
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.targets import display_name, target_key

__all__ = ["timed_calls"]


def timed_calls(program: torch.export.ExportedProgram, flat: Sequence[Any], runs: int = 7) -> list[CapturedCall]:
    """The calls of a captured graph, each with the median of its times in several runs.

    Args:
        program: The captured program.
        flat: The flattened inputs.
        runs: The number of timed runs, which follow one run that is not timed.
    """
    module = program.module()
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    with torch.no_grad(), own_random_numbers():
        for number in range(1 + runs):
            timed = _Timed(module)
            copied = [value.clone() if isinstance(value, torch.Tensor) else value for value in flat]
            timed.run(*copied, enable_io_processing=False)
            for name, duration in timed.seconds.items() if number else ():
                seconds[name].append(duration)
    return [
        CapturedCall(
            name=node.name,
            target=display_name(target_key(node.target)),
            seconds=statistics.median(seconds[node.name]),
            users=tuple(user.name for user in node.users),
            computes=_computes(node.target),
        )
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


def _computes(target: Any) -> bool:
    """Whether a call computes new numbers, instead of returning a view of its arguments."""
    if target is operator.getitem:
        return False
    returns = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
    return not returns or any(item.alias_info is None or item.alias_info.is_write for item in returns)


class _Timed(torch.fx.Interpreter):
    """Runs a graph, and times each call."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.seconds: dict[str, float] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        start = time.perf_counter()
        result = super().run_node(n)
        self.seconds[n.name] = time.perf_counter() - start
        return result
