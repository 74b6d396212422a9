"""The model is in training mode.

What it means: dropout is active, and batch normalization uses the statistics of the batch instead of the learned ones.

Why it is a problem: the results are random, or depend on the other items in the batch.

Example::

    model = torchvision.models.resnet18()          # training mode is the default
    opbridge.export(model, (x,), path="out")

Fix: call ``model.eval()`` before the export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opbridge.findings.base import Finding, source_names
from opbridge.torch_graph.sources import source_of_node

if TYPE_CHECKING:
    import torch

CODE = "training-mode"

_MODES, _RATES = ("train", "training"), ("dropout", "dropout_p", "p")
"""What operators call the argument that selects the mode, and the share of the elements that dropout drops."""


def in_training(node: torch.fx.Node) -> bool | None:
    """Whether a node computes something else in training than in evaluation; None for an operator without modes.

    Dropout that drops nothing, as of a recurrent layer whose ``dropout`` is 0, is the same in both.
    """
    arguments = _arguments(node)
    modes = [arguments[name] for name in _MODES if name in arguments]
    rates = [arguments[name] for name in _RATES if name in arguments]
    if any(isinstance(rate, int | float) and rate == 0 for rate in rates):
        return False
    return modes[0] is not False if modes else None


def _arguments(node: torch.fx.Node) -> Mapping[str, Any]:
    """The arguments of a node by name, defaults included."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    names = [argument.name for argument in schema.arguments]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognized by the training arguments of operators."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and in_training(node)]
    if nodes:
        targets = tuple(dict.fromkeys(node.target.name().partition(".")[0] for node in nodes))
        yield finding(targets, source_names(*map(source_of_node, nodes)))


def finding(targets: tuple[str, ...], sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding.

    Args:
        targets: The operators captured in training mode; empty if opbridge captured the model in evaluation mode.
        sources: The lines that call them.
    """
    if not targets:
        return Finding(
            CODE,
            "model",
            "The model was passed in training mode; it is captured in evaluation mode.",
            "call model.eval() before the export to get the same results in PyTorch.",
            severity="info",
            mended=True,
        )
    where = f" at {sources[0]}" if sources else ""
    return Finding(
        CODE,
        targets[0],
        f"The model is in training mode: {', '.join(targets)}{where} runs with training=True.",
        "call model.eval() before the export, or pass training=self.training to the functional form.",
        severity="warning",
        sources=sources,
    )
