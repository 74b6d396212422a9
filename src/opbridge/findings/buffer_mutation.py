"""The model changes a buffer, and an ONNX model does not keep the change.

What it means: ``forward`` modifies a buffer (a cache, a counter, running statistics) that the next call reads.

Why it is a problem: an ONNX model is stateless. Every run starts from the buffer's value at the time of the export.

Example::

    self.steps.add_(1)

Fix: export with ``--state``, which makes the buffer an input and an output of the ONNX model. Nothing needs to be done
if the next call does not read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.findings.base import Finding, source_names
from opbridge.findings.input_mutation import writes
from opbridge.torch_graph.sources import source_of_node

if TYPE_CHECKING:
    import torch

CODE = "buffer-mutation"


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognized by the signature of a decomposed program, and otherwise by operators that write into a buffer."""
    for name, nodes in mutated_buffers(program).items():
        yield finding(name, source_names(*map(source_of_node, nodes)))


def mutated_buffers(program: torch.export.ExportedProgram) -> dict[str, list[torch.fx.Node]]:
    """The buffers that a program changes, with the nodes that write into them."""
    signature = program.graph_signature
    nodes: dict[str, list[torch.fx.Node]] = {name: [] for name in signature.buffers_to_mutate.values()}
    for node, written in writes(program):
        name = signature.inputs_to_buffers.get(written.name)
        if name is not None:
            nodes.setdefault(name, []).append(node)
    return nodes


def finding(name: str, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding from the buffer's name and the lines that write into it."""
    where = f" at {', '.join(sources[:3])}" if sources else ""
    return Finding(
        CODE,
        name,
        f"The model changes its buffer {name!r}{where}; in the ONNX model it has its initial value in every run.",
        "export with --state (state=True) if the next call reads it: the buffer becomes an input, and its next value "
        "an output.",
        severity="warning",
        sources=sources,
    )


def carried(name: str, input_name: str, output_name: str) -> Finding:
    """Make the finding about a buffer that is an input and an output of the ONNX model."""
    return Finding(
        CODE,
        name,
        f"The model changes its buffer {name!r}, which is the input {input_name!r} and the output {output_name!r}.",
        f"pass the output {output_name!r} of each run as the input {input_name!r} of the next; initial_state.npz has "
        "the first value.",
        severity="info",
        mended=True,
    )
