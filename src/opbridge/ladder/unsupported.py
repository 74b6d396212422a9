"""Creates the errors that name all operators for which no rung is left."""

from __future__ import annotations

from collections.abc import Sequence

from opbridge.errors import UnsupportedOperatorError
from opbridge.ladder.climbed import Break
from opbridge.onnx_model.names import KEPT_DOMAIN
from opbridge.torch_graph.targets import display_name

__all__ = ["unsupported_nodes", "unsupported_operators"]

_STANDARD = "ai.onnx::"
_KEPT = f"{KEPT_DOMAIN}::"


def unsupported_operators(breaks: Sequence[Break]) -> UnsupportedOperatorError:
    """The error about unsupported operators of a captured program."""
    lines = [
        f"  {found.target.removesuffix('.default')}: {found.reason}"
        + (f" [{found.engine}]" if found.engine else "")
        + (f" (at {', '.join(found.sources[:3])})" if found.sources else "")
        for found in breaks
    ]
    custom = next((found.node for found in breaks if found.node and not found.node.startswith(_STANDARD)), "")
    if custom.startswith(_KEPT):
        bare = custom.removeprefix(_KEPT)
        lines = [line.replace(_KEPT, "") for line in lines]
        fix = (
            f"ONNX does not have this {bare}: give it a domain in its symbolic function, "
            f"g.op('mydomain::{bare}', ...), and declare a body or a kernel; or, for an engine that reads it, write "
            "the model as it is with --engine none."
        )
        return _error(breaks, lines, fix=fix)
    first = display_name(breaks[0].target)
    fix = (
        f"{_declaration(custom)}; or, for an engine that opbridge does not know, write the model as it is with "
        "--engine none."
        if custom
        else f"give each a mapping of your own: @opbridge.decomposition({first!r}) in torch operators, or "
        f"@opbridge.translation({first!r}) in ONNX operators; `opbridge diagnose` shows every link."
    )
    return _error(breaks, lines, fix=fix)


def unsupported_nodes(breaks: Sequence[Break]) -> UnsupportedOperatorError:
    """The error about unsupported nodes of an ONNX model."""
    lines = [
        f"  {found.target}: {found.reason} [{found.engine}] (node {', '.join(map(repr, found.sources[:3]))}"
        + (f" and {len(found.sources) - 3} more)" if len(found.sources) > 3 else ")")
        for found in breaks
    ]
    custom = next((found.target for found in breaks if not found.target.startswith(_STANDARD)), "")
    fix = (
        f"{_declaration(custom)}."
        if custom
        else "try another --opset, another version of the engine (--engine NAME==VERSION), or replace the nodes."
    )
    return _error(breaks, lines, fix=fix)


def _declaration(custom: str) -> str:
    """How to declare what a custom node computes."""
    return (
        f"declare what {custom} computes with @opbridge.body_for({custom!r}) in torch operators, or give it a kernel "
        f"with opbridge.kernel_for({custom!r}, 'file.h'), in a file named with --ops"
    )


def _error(breaks: Sequence[Break], lines: Sequence[str], *, fix: str) -> UnsupportedOperatorError:
    count = "1 operator is" if len(lines) == 1 else f"{len(lines)} operators are"
    return UnsupportedOperatorError(
        f"{count} not supported on any rung:\n" + "\n".join(lines),
        fix=fix,
        targets=[found.target for found in breaks],
    )
