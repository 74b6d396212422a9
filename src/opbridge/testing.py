"""Assertions for the tests of a project that deploys models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opbridge.atomic import TemporaryFolder
from opbridge.proof.verify.verification import Verification
from opbridge.verbs.export import export

__all__ = ["assert_equal"]


def assert_equal(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    engines: Sequence[str] = ("onnxruntime",),
    dynamic_shapes: Any = None,
    **options: Any,
) -> None:
    """Assert that a model computes in the engines what it computes in PyTorch.

    The model is exported to a temporary folder and verified on fresh inputs of several sizes. The tolerance is computed
    from PyTorch's own rounding error; see docs/verification.md.

    Args:
        model: The model, as for :func:`opbridge.export`.
        args: Example inputs.
        kwargs: Example inputs by keyword.
        engines: The engines.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``.
        options: Further options of :func:`opbridge.export`, such as ``ops``, ``inputs``, ``edge_sizes``.

    Raises:
        AssertionError: An engine's outputs do not match PyTorch's, or an engine fails; the message has each output
            with its error, and the first mismatching node.
        OpbridgeError: The model can't be exported.
    """
    with TemporaryFolder() as folder:
        bundle = export(
            model,
            args,
            kwargs,
            path=Path(folder) / "bundle",
            engines=engines,
            dynamic_shapes=dynamic_shapes,
            **options,
        )
        verification = Verification.from_dict(bundle.verification or {})
        if not verification.passed:
            raise AssertionError(verification.summary())
