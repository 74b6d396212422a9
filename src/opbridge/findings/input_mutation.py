"""The model changes one of its inputs in place.

What it means: ``forward`` modifies a tensor that the caller passed.

Why it is a problem: an engine does not change its inputs. A caller that reads them afterwards sees the old values.

Example::

    x.mul_(2)

Fix: return the new value, or compute into a new tensor: ``x = x * 2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opbridge.findings.base import Finding, source_names
from opbridge.torch_graph.sources import source_of_node

if TYPE_CHECKING:
    import torch

CODE = "input-mutation"


def writes(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, Any]]:
    """Each node that writes in place, with the placeholder that it changes, directly or through views."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for argument, value in zip(schema.arguments if schema else (), node.args, strict=False):
            if argument.is_write:
                while getattr(value, "op", None) == "call_function" and _is_view(value) and value.args:
                    value = value.args[0]
                if getattr(value, "op", None) == "placeholder":
                    yield node, value


def _is_view(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(argument.alias_info is not None for argument in schema.arguments[:1])


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognized by the signature of a decomposed program, and otherwise by operators that write into an input."""
    signature = program.graph_signature
    nodes: dict[str, list[Any]] = {name: [] for name in signature.user_inputs_to_mutate.values()}
    for node, written in writes(program):
        if written.name in signature.user_inputs:
            nodes.setdefault(written.name, []).append(node)
    for name, found in nodes.items():
        yield finding(name, source_names(*map(source_of_node, found)))


def finding(name: str, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding from the input's name and the lines that write into it."""
    where = f" at {', '.join(sources[:3])}" if sources else ""
    return Finding(
        CODE,
        name,
        f"The model changes its input {name!r} in place{where}; an engine does not change its inputs.",
        f"return the changed {name!r} as an output if the caller needs it, or compute into a new tensor.",
        severity="warning",
        sources=sources,
    )
