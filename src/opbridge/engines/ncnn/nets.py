"""Create and load ncnn's nets."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opbridge.engines.ncnn import native
from opbridge.errors import EngineError

__all__ = ["fresh_net", "load_net", "set_options"]


def fresh_net(threads: int) -> Any:
    """An empty net with the options of :func:`set_options`."""
    net = native.runtime().Net()
    set_options(net, threads)
    return net


def set_options(net: Any, threads: int) -> None:
    """Compute in float32 throughout, and without packed layouts, which kernels can't read."""
    options = net.opt
    options.num_threads = threads
    options.use_vulkan_compute = False
    options.use_packing_layout = False
    for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage", "use_bf16_packed"):
        if hasattr(options, name):
            setattr(options, name, False)


def load_net(net: Any, param: Path, weights: Path) -> None:
    """Load a net's two files.

    Raises:
        EngineError: ncnn refuses a file; the message is ncnn's output, which names the layer.
    """
    for read, path in ((net.load_param, param), (net.load_model, weights)):
        with _printed() as lines:
            code = read(str(path))
        if code:
            reason = "; ".join(dict.fromkeys(lines)) or f"code {code}"
            raise EngineError(
                f"ncnn {native.version()} refuses {path.name!r}: {reason}.",
                fix="run `opbridge diagnose --engine ncnn` on the model to see what ncnn does not support.",
            )


_STDERR = threading.Lock()


@contextmanager
def _printed() -> Iterator[list[str]]:
    """Capture what ncnn prints to stderr, the only place where it names a refused layer."""
    lines: list[str] = []
    with _STDERR, tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
