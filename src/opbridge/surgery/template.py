"""The data of a pattern and of the node that replaces it."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from opbridge.surgery.dimensions import Size

__all__ = ["Given", "Pattern", "Template"]


@dataclasses.dataclass(frozen=True)
class Template:
    """The node that replaces a pattern.

    Attributes:
        domain: The domain of the node.
        name: The operator of the node.
        overload: The overload of its function.
        inputs: For each input of the node, its position among the pattern's inputs, or None.
        attributes: The attributes of the node.
        functions: The body of the node, and the functions that the body calls.
    """

    domain: str
    name: str
    overload: str
    inputs: tuple[int | None, ...]
    attributes: tuple[ir.Attr, ...]
    functions: tuple[ir.Function, ...]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A graph to search for.

    Attributes:
        inputs: The inputs of the pattern.
        outputs: The outputs of the pattern.
        graph: The graph, without function calls.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    graph: ir.Graph | ir.Function


@dataclasses.dataclass(frozen=True)
class Given:
    """The type and sizes of a pattern's input in a match.

    Attributes:
        dtype: The element type.
        sizes: The sizes, as numbers or as expressions over named dimensions.
    """

    dtype: ir.DataType
    sizes: tuple[Size, ...]
