"""An engine for tests with a kernel that is wrong: onnx's evaluator, whose results of one operator are a little off.

``install`` makes it known to this process and to its children, as the engine ``faulty``; FAULTY names the operator.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["install"]

ENGINE = '''
"""onnx's evaluator with a wrong kernel."""

import os

from opbridge.engines.reference.engine import ReferenceEngine


def spoil(run):
    return lambda *arrays, **more: tuple(array * array.dtype.type(1.01) for array in run(*arrays, **more))


class ENGINE(ReferenceEngine):
    name = "faulty"

    def load(self, path, **options):
        from onnx.reference import ReferenceEvaluator

        own = ReferenceEvaluator.__init__

        def begin(self, *arguments, **more):
            own(self, *arguments, **more)
            for node in self.rt_nodes_:
                if node.onnx_node.op_type == os.environ["FAULTY"]:
                    node.run = spoil(node.run)

        ReferenceEvaluator.__init__ = begin
        try:
            return super().load(path, **options)
        finally:
            ReferenceEvaluator.__init__ = own
'''


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    """Make the engine known, with a wrong kernel of ``operator``."""
    import opbridge.engines

    (folder / "faulty").mkdir(parents=True)
    (folder / "faulty" / "__init__.py").write_text(ENGINE)
    hook = f"import opbridge.engines as e; e.__path__.append({str(folder)!r})"
    (folder / "sitecustomize.py").write_text(hook)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("FAULTY", operator)
    monkeypatch.setattr(opbridge.engines, "__path__", [*opbridge.engines.__path__, str(folder)])
