"""TensorRT, if the package ``tensorrt`` and its libraries are installed; PyPI does not have the libraries.

It shares its code with TensorRT for RTX, whose parser has the same interface; the answers are those of its own parser.
"""

from typing import ClassVar

from opbridge.engines.tensorrt_rtx.engine import TensorRTRTXEngine
from opbridge.engines.tensorrt_rtx.native import TENSORRT, Product

__all__ = ["ENGINE"]


class TensorRTEngine(TensorRTRTXEngine):
    """TensorRT on NVIDIA's GPUs. This has not been tested with the real product."""

    name: str = "tensorrt"
    package: ClassVar[str] = "tensorrt"
    product: ClassVar[Product] = TENSORRT


ENGINE = TensorRTEngine
