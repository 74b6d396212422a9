"""ncnn, with its converter pnnx."""

from opbridge.engines.ncnn.engine import NcnnEngine

__all__ = ["ENGINE"]

ENGINE = NcnnEngine
