"""Writes a script that reproduces an export failure, with PyTorch alone if that is enough."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import operator
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import torch

from opbridge.engines import family_of
from opbridge.engines.base import Engine
from opbridge.proof.reduce.calls import CallPart
from opbridge.proof.reduce.engine_script import in_docstring

__all__ = ["export_scripts", "tensor_code"]

_SCRIPT = '''"""An export that fails: {title}.

{story}
Needs {needs}. The exit code is 0 once the fault is gone.
"""

{modules}

import torch
{operators}

class Model(torch.nn.Module):
    """What is left of the model."""

    def forward(self, {names}):
{body}


ARGS = ({args},)

{attempt}
'''

_BY_TORCH = """
program = torch.export.export(Model().eval(), ARGS)
try:
    torch.onnx.export(program, dynamo=True, verbose=False)
except Exception as error:
    print(f"torch {torch.__version__} can't export it: {type(error).__name__}: {error}")
    sys.exit(1)
"""

_ON_ENGINE = """
import tempfile

{run}

program = torch.onnx.export(torch.export.export(Model().eval(), ARGS), dynamo=True, verbose=False)
feeds = {{name: arg.numpy() for name, arg in zip([{quoted}], ARGS, strict=True)}}
with tempfile.TemporaryDirectory() as folder:
    program.save(f"{{folder}}/model.onnx")
    try:
        run(f"{{folder}}/model.onnx", feeds, [])
    except Exception as error:
        print(f"{engine} does not take it: {{type(error).__name__}}: {{error}}")
        sys.exit(1)
"""

_BY_OPBRIDGE = """
import tempfile

import opbridge

with tempfile.TemporaryDirectory() as folder:
    try:
        opbridge.export(Model().eval(), ARGS, path=f"{{folder}}/bundle", engines=[{engine!r}])
    except opbridge.OpbridgeError as error:
        print(f"opbridge {{opbridge.__version__}} can't export it: {{error}}")
        sys.exit(1)
"""


def export_scripts(part: CallPart, message: str, engine: Engine) -> Iterator[str]:
    """Scripts for the same program: with torch alone, with torch and the engine, and with opbridge.

    Args:
        part: The remaining part of the program.
        message: Why opbridge can't export it.
        engine: The target engine of the export.
    """
    names = [node.name for node in part.module.graph.nodes if node.op == "placeholder"]
    body = "\n".join(_lines(part))
    calls = list(dict.fromkeys(_spelled(node.target) for node in part.calls))

    def script(attempt: str, needs: str) -> str:
        return _SCRIPT.format(
            title=in_docstring(", ".join(calls[:4])),
            story=textwrap.fill(in_docstring(message), 110),
            needs=needs,
            operators="".join(_declarations(part)),
            names=", ".join(names),
            modules="import operator\nimport sys" if "operator." in body else "import sys",
            body=textwrap.indent(body, " " * 8),
            args=", ".join(tensor_code(arg) for arg in part.args),
            attempt=attempt.strip(),
        )

    yield script(_BY_TORCH, f"torch (it was {torch.__version__})")
    source = _source(engine)
    if source is not None:
        quoted = ", ".join(map(repr, names))
        attempt = _ON_ENGINE.format(run=source.strip(), quoted=quoted, engine=f"{engine.name} {engine.version}")
        yield script(attempt, f"torch (it was {torch.__version__}) and {engine.package} ({engine.version})")
    yield script(_BY_OPBRIDGE.format(engine=engine.name), f"torch (it was {torch.__version__}) and opbridge")


def _source(engine: Engine) -> str | None:
    name = f"opbridge.engines.{family_of(engine.name)}.standalone"
    if engine.accepts != "onnx" or importlib.util.find_spec(name) is None:
        return None
    return inspect.getsource(importlib.import_module(name).run)


def _lines(part: CallPart) -> Iterator[str]:
    """The calls as Python code."""
    for node in part.module.graph.nodes:
        if node.op == "call_function":
            yield f"{node.name} = {_call(node)}"
        elif node.op == "output":
            results = ", ".join(str(item) for item in node.args[0])
            yield f"return {results}" if len(node.args[0]) == 1 else f"return ({results})"


def _call(node: torch.fx.Node) -> str:
    if node.target is operator.getitem:
        return f"{_literal(node.args[0])}[{_literal(node.args[1])}]"
    arguments = [_literal(item) for item in node.args]
    arguments += [f"{key}={_literal(item)}" for key, item in node.kwargs.items()]
    return f"{_spelled(node.target)}({', '.join(arguments)})"


def _spelled(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    return f"{getattr(target, '__module__', '').lstrip('_')}.{getattr(target, '__name__', target)}"


def _literal(value: Any) -> str:
    """An argument as Python code; nodes are written as names, and torch's objects as they are printed."""
    if isinstance(value, list | tuple):
        inner = ", ".join(_literal(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return str(value) if isinstance(value, torch.fx.Node) else repr(value)


def tensor_code(value: torch.Tensor) -> str:
    """Python code for a tensor of the same type and shape; its numbers don't matter to an export."""
    maker = "ones" if value.dtype.is_floating_point or value.dtype.is_complex else "zeros"
    return f"torch.{maker}({list(value.shape)}, dtype={value.dtype})"


def _declarations(part: CallPart) -> Iterator[str]:
    """Declarations of the operators that are not part of torch, with the recorded shapes of their results."""
    seen = set()
    for node in part.calls:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace in _OWN or target in seen:
            continue
        seen.add(target)
        schema = str(target._schema)
        name, _, rest = schema.partition("(")
        results = _results(part, node)
        yield (
            f'\ntorch.library.define("{name}", "({rest}")\n\n\n'
            f'@torch.library.register_fake("{re.sub(r"[.].*", "", name)}")\n'
            f'def _(*args, **kwargs):\n    """The shape that the result had."""\n    return {results}\n'
        )


_OWN = frozenset(("aten", "prims", "prim", "quantized", "torchvision", "_caffe2"))


def _results(part: CallPart, node: torch.fx.Node) -> str:
    value = _Shapes(part.module).of(node, part.args)
    if isinstance(value, torch.Tensor):
        return f"torch.empty({list(value.shape)}, dtype={value.dtype})"
    return ", ".join(f"torch.empty({list(item.shape)}, dtype={item.dtype})" for item in value)


class _Shapes(torch.fx.Interpreter):
    """Reruns a part to get the value of one of its calls."""

    def of(self, node: torch.fx.Node, args: tuple[torch.Tensor, ...]) -> Any:
        """The value of a call."""
        self._node = node
        with torch.no_grad():
            self.run(*args)
        return self._found

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        result = super().run_node(n)
        if n is self._node:
            self._found = result
        return result
