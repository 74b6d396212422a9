"""TensorRT proper, where the package ``tensorrt`` and its libraries are installed; PyPI has no libraries for it.

The code is that of its sibling, TensorRT for RTX, whose parser has the same interface; what it takes is what its own
parser says.
"""

from typing import ClassVar

from opbridge.engines.tensorrt_rtx.engine import TensorRTRTXEngine
from opbridge.engines.tensorrt_rtx.native import TENSORRT, Product

__all__ = ["ENGINE"]


class TensorRTEngine(TensorRTRTXEngine):
    """TensorRT on NVIDIA's GPUs. No machine with it was at hand when this was written."""

    name: str = "tensorrt"
    package: ClassVar[str] = "tensorrt"
    product: ClassVar[Product] = TENSORRT

    @property
    def install(self) -> str:
        """Where it comes from."""
        return TENSORRT.install


ENGINE = TensorRTEngine
