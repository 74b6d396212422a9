"""The options of ``export``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from opbridge.engines.versions import Versions
from opbridge.proof.verify.options import VerifyOptions

__all__ = ["ExportOptions"]


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """How to export; see :func:`opbridge.export`.

    Attributes:
        path: The folder of the bundle.
        requested: The opset and the IR version that the user requests.
        verify: How to verify the bundle; None to write it without a verification.
        overwrite: Whether to replace an existing bundle.
        with_reference: Whether to save the captured program, or the ONNX model, in the bundle.
        external_data: Whether the weights are in a file beside the model; None leaves it to their size.
    """

    path: str | Path
    requested: Versions
    verify: VerifyOptions | None
    overwrite: bool = False
    with_reference: bool = False
    external_data: bool | None = None
