"""An engine for tests that does to its own process what an engine's bug would.

``install`` makes it known to this process and to its children, as the engine ``crashing``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

__all__ = ["install"]

ENGINE = '''
"""onnx's evaluator, which comes to grief at some operators: CRASHES="Sinh=crash,Cosh=hang" in the environment.

One that is slow, or that only takes note, writes its process to the file SLOW first.
"""

import ctypes
import os
import sys
import time

import numpy as np

from opbridge.engines.reference.engine import ReferenceEngine
from opbridge.engines.roles import CompilesAhead

WAYS = dict(item.split("=") for item in os.environ.get("CRASHES", "").split(",") if item)


def come_to_grief(way, array):
    sys.stderr.write("something is odd\\\\n")
    sys.stderr.flush()
    if way == "crash" or (way == "negative" and (array < 0).any()):
        ctypes.string_at(0)
    elif way == "abort":
        os.abort()
    elif way in ("slow", "note"):
        with open(os.environ["SLOW"], "a") as file:
            print(os.getpid(), file=file, flush=True)
        time.sleep(2 if way == "slow" else 0)
    elif way == "hang":
        time.sleep(600)
    elif way == "memory":
        np.ones(1 << 48)


def watched(run, way):
    def watching(*arrays, **more):
        come_to_grief(way, np.asarray(arrays[0]))
        return run(*arrays, **more)

    return watching


def watch_operators():
    from onnx.reference import ReferenceEvaluator

    own = ReferenceEvaluator.__init__

    def begin(self, *arguments, **options):
        own(self, *arguments, **options)
        for node in self.rt_nodes_:
            way = WAYS.get(node.onnx_node.op_type)
            if way:
                node.run = watched(node.run, way)

    ReferenceEvaluator.__init__ = begin


class ENGINE(ReferenceEngine):
    name = "crashing"

    def load(self, path, **options):
        import onnx

        watch_operators()
        if any(WAYS.get(node.op_type) == "load" for node in onnx.load(path).graph.node):
            ctypes.string_at(0)
        return super().load(path, **options)
'''


COMPILES = """

if "compile" in WAYS.values():

    class ENGINE(ENGINE, CompilesAhead):
        def compile_model(self, model, libraries):
            ctypes.string_at(0)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, crashes: str) -> None:
    """Make the engine known; ``crashes`` says where it does what."""
    import opbridge.engines

    # Another test of this process may have imported the engine: its class depends on ``crashes``.
    monkeypatch.delitem(sys.modules, "opbridge.engines.crashing", raising=False)
    opbridge.engines.get.cache_clear()
    (folder / "crashing").mkdir(parents=True)
    (folder / "crashing" / "__init__.py").write_text(ENGINE + COMPILES)
    hook = f"import opbridge.engines as e; e.__path__.append({str(folder)!r})"
    (folder / "sitecustomize.py").write_text(hook)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("CRASHES", crashes)
    monkeypatch.setattr(opbridge.engines, "__path__", [*opbridge.engines.__path__, str(folder)])
