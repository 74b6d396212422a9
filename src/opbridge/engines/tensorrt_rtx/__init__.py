"""TensorRT for RTX: NVIDIA's sibling product of TensorRT for GPUs of its RTX series.

Its parser and its builder work without a GPU, so they are asked here; running needs one. TensorRT proper has the same
interface and is served by the same code, in ``engines/tensorrt``; each answers for itself alone.
"""

from opbridge.engines.tensorrt_rtx.engine import TensorRTRTXEngine

__all__ = ["ENGINE"]

ENGINE = TensorRTRTXEngine
