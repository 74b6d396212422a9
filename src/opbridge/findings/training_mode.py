"""The model is in training mode.

What it means: dropout is active, and batch normalization uses the statistics of the batch instead of the learned ones.

Why it is a problem: the results are random, or depend on the other items in the batch.

Example::

    model = torchvision.models.resnet18()          # training mode is the default
    opbridge.export(model, (x,), path="out")

Fix: call ``model.eval()`` before the export.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.findings.base import Finding, source_names
from opbridge.torch_graph.sources import source_of_node

if TYPE_CHECKING:
    import torch

CODE = "training-mode"

_FLAG = {
    "aten::dropout": 2,
    "aten::feature_dropout": 2,
    "aten::alpha_dropout": 2,
    "aten::feature_alpha_dropout": 2,
    "aten::native_dropout": 2,
    "aten::batch_norm": 5,
}
"""Operators that behave differently in training, with the position of the argument that selects the mode."""


def in_training(node: torch.fx.Node) -> bool | None:
    """Whether a node is in training mode; None for an operator without modes."""
    name = getattr(node.target, "name", None)
    position = _FLAG.get(name().partition(".")[0].removesuffix("_")) if callable(name) else None
    if position is None:
        return None
    return bool(node.args[position]) if len(node.args) > position else bool(node.kwargs.get("train", True))


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
