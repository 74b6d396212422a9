"""The settings of an export that symbolic functions can read."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping

__all__ = ["Target", "current_target", "targeting"]


@dataclasses.dataclass(frozen=True)
class Target:
    """The settings of one export.

    Attributes:
        custom_opsets: The versions of custom domains; the version of a domain that is not listed is 1.
        training: The name of a member of ``torch.onnx.TrainingMode``.
        operator_export_type: The name of a member of ``torch.onnx.OperatorExportTypes``.
        constant_folding: Whether nodes whose inputs are all constants are computed during the export.
    """

    custom_opsets: Mapping[str, int] = dataclasses.field(default_factory=dict)
    training: str = "EVAL"
    operator_export_type: str = "ONNX"
    constant_folding: bool = True


_current: contextvars.ContextVar[Target | None] = contextvars.ContextVar("opbridge_legacy_target", default=None)


def current_target() -> Target:
    """Return the settings of the current export."""
    return _current.get() or Target()


@contextlib.contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Use ``target`` for the exports of this thread inside the block."""
    token = _current.set(target)
    try:
        yield
    finally:
        _current.reset(token)
