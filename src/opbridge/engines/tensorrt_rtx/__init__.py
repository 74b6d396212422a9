"""TensorRT for RTX: NVIDIA's variant of TensorRT for GPUs of the RTX series.

The parser and the builder work without a GPU; running needs one. TensorRT has the same interface and uses the same code
(``engines/tensorrt``), but each product answers only for itself.
"""

from opbridge.engines.tensorrt_rtx.engine import TensorRTRTXEngine

__all__ = ["ENGINE"]

ENGINE = TensorRTRTXEngine
