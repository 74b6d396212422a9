"""The options of ``export``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from opbridge.catalog.declare.nan import ABSENT, Nan
from opbridge.engines.versions import Versions
from opbridge.proof.verify.options import VerifyOptions

__all__ = ["ExportOptions"]


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export; see :func:`opbridge.export`.

    Attributes:
        path: The folder of the bundle.
        requested: The opset and the IR version that the user requests.
        verify: The options of the verification; None to write the bundle without a verification.
        overwrite: Whether to replace an existing bundle.
        with_reference: Whether to save the captured program, or the ONNX model, in the bundle.
        external_data: Whether to store the weights in a separate file; None decides by their size.
        nan: What the model does with NaN.
        may_become_exact: Whether to export again with ``nan="exact"`` if the verification meets NaN.
    """

    path: str | Path
    requested: Versions
    verify: VerifyOptions | None
    overwrite: bool = False
    with_reference: bool = False
    external_data: bool | None = None
    nan: Nan = ABSENT
    may_become_exact: bool = False
