"""Suppresses the messages of torch and onnxscript, which opbridge reports as findings."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator

__all__ = ["silenced"]

_LOGGERS = ("torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript", "onnx_ir")


@contextlib.contextmanager
def silenced() -> Iterator[io.StringIO]:
    """Suppress warnings, log messages below ERROR, and output to ``sys.stderr``.

    Yields:
        The output to ``sys.stderr``: torch prints thousands of lines of graphs before it raises an error.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    printed, screen = io.StringIO(), sys.stderr
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        sys.stderr = printed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield printed
    finally:
        sys.stderr = screen
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
