"""The old exporter's settings, as symbolic functions see them."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping

__all__ = ["Target", "current_target", "targeting"]


@dataclasses.dataclass(frozen=True)
class Target:
    """The settings of an export that symbolic functions see.

    Attributes:
        custom_opsets: The versions of custom domains; 1 for a domain that is not named.
        training: ``torch.onnx.TrainingMode`` by name.
        operator_export_type: ``torch.onnx.OperatorExportTypes`` by name.
        constant_folding: Whether nodes whose inputs are all constants are computed while exporting.
    """

    custom_opsets: Mapping[str, int] = dataclasses.field(default_factory=dict)
    training: str = "EVAL"
    operator_export_type: str = "ONNX"
    constant_folding: bool = True


_current: contextvars.ContextVar[Target | None] = contextvars.ContextVar("opbridge_legacy_target", default=None)


def current_target() -> Target:
    """The settings in force."""
    return _current.get() or Target()


@contextlib.contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Put ``target`` in force for the exports of this thread inside the block."""
    token = _current.set(target)
    try:
        yield
    finally:
        _current.reset(token)
