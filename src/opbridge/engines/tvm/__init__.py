"""TVM."""

from opbridge.engines.tvm.engine import TvmEngine

__all__ = ["ENGINE"]

ENGINE = TvmEngine
