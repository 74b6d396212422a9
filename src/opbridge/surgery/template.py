"""What is looked for, and the node that is put in its place."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from opbridge.surgery.dimensions import Size

__all__ = ["Given", "Pattern", "Template"]


@dataclasses.dataclass(frozen=True)
class Template:
    """The node that stands for a pattern.

    Attributes:
        domain: Its domain.
        name: Its operator.
        overload: The overload of its function.
        inputs: For each of its inputs the position among the pattern's, or None.
        attributes: Its attributes.
        functions: Its body, and what that calls.
    """

    domain: str
    name: str
    overload: str
    inputs: tuple[int | None, ...]
    attributes: tuple[ir.Attr, ...]
    functions: tuple[ir.Function, ...]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A graph to look for.

    Attributes:
        inputs: Its inputs.
        outputs: Its outputs.
        graph: The graph, without calls of functions.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    graph: ir.Graph | ir.Function


@dataclasses.dataclass(frozen=True)
class Given:
    """What an input of a pattern is at some place.

    Attributes:
        dtype: Its element type.
        sizes: Numbers, or expressions over named dimensions.
    """

    dtype: ir.DataType
    sizes: tuple[Size, ...]
