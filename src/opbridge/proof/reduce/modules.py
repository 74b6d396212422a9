"""Finds the smallest module of a model that torch.export can't capture."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import torch

from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry
from opbridge.capture.failures import CaptureFailure
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import CaptureError, OpbridgeError
from opbridge.proof.reduce.output import SCRIPT, runs_and_fails, write_folder
from opbridge.proof.reduce.result import Reduction
from opbridge.proof.reduce.torch_script import tensor_code
from opbridge.proof.reduce.trials import Clock
from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.state import keeping_state

__all__ = ["reduce_capture"]

_SCRIPT = '''"""A module that torch.export can't capture: {name}.

{story}
Needs torch (it was {version}), and what {file} imports. The exit code is 0 once the fault is gone.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import {stem}

built = {stem}.{function}()
model = built["model"] if isinstance(built, dict) else built[0]
{arguments}

try:
    torch.export.export(model.eval(){path}, args, kwargs)
except Exception as error:
    print(f"torch {{torch.__version__}} can't capture it: {{type(error).__name__}}: {{error}}")
    sys.exit(1)
'''


@dataclasses.dataclass(frozen=True)
class _Called:
    """A module and the arguments of its first call."""

    path: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def size(self) -> int:
        """The number of modules in it, itself included."""
        return len(list(self.module.modules()))


def reduce_capture(
    entry: Entry, catalog: Catalog, error: CaptureError, path: Path, clock: Clock, started: float
) -> Reduction:
    """Find the smallest module that fails like the model, and write a script with a copy of the entry's file.

    Args:
        entry: The model.
        catalog: The catalog whose rewrites are active during capture.
        error: The error of capturing the model.
        path: The folder to create.
        clock: The time limit of the search.
        started: The time at which the reduction began.

    Raises:
        CaptureError: The entry is not in a file, or PyTorch can't run the model either.
    """
    if entry.file is None or not isinstance(entry.model, torch.nn.Module) or entry.file.suffix != ".py":
        raise error
    root = _Called("", entry.model, tuple(entry.args), dict(entry.kwargs))
    called = [root, *_called(root, error)]
    smallest = root
    while inner := _failing_child(smallest, called, catalog, error, clock):
        smallest = inner
    text = _script(entry, smallest, error)
    source = entry.file

    def fill(folder: Path) -> None:
        (folder / SCRIPT).write_text(text, encoding="utf-8")
        shutil.copyfile(source, folder / source.name)

    files = write_folder(path, fill)
    return Reduction(
        folder=path,
        kind="capture",
        message=" ".join(line.strip() for line in error.message.splitlines()[:2]),
        engine=f"torch {torch.__version__}",
        nodes=smallest.size,
        nodes_before=root.size,
        operators=(type(smallest.module).__name__,),
        tries=clock.tries,
        seconds=time.monotonic() - started,
        finished=not clock.is_over,
        reproduces=runs_and_fails(Path(sys.executable), path / SCRIPT),
        files=files,
    )


def _called(root: _Called, error: CaptureError) -> list[_Called]:
    """The submodules that are called through ``__call__``, with their arguments."""
    found: dict[str, _Called] = {}
    paths = {module: name for name, module in root.module.named_modules() if name}

    def note(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        name = paths[module]
        found.setdefault(name, _Called(name, module, tuple(args), dict(kwargs)))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in paths]
    try:
        with keeping_state(root.module), frozen(root.module), torch.no_grad():
            root.module(*root.args, **root.kwargs)
    except Exception:
        raise error from None
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())


def _failing_child(
    parent: _Called, called: list[_Called], catalog: Catalog, error: CaptureError, clock: Clock
) -> _Called | None:
    """The outermost submodule that fails on its own."""
    prefix = f"{parent.path}." if parent.path else ""
    for child in called:
        if child.path == parent.path or not child.path.startswith(prefix) or clock.is_over:
            continue
        clock.tick(f"module {child.path}")
        try:
            capture(child.module, child.args, child.kwargs, rewrites=catalog.rewrites())
        except OpbridgeError as found:
            if _code(found) == _code(error):
                return child
    return None


def _code(error: OpbridgeError) -> str:
    return error.finding.code if isinstance(error, CaptureFailure) else type(error).__name__


def _script(entry: Entry, smallest: _Called, error: CaptureError) -> str:
    assert entry.file is not None
    own = [*smallest.args, *smallest.kwargs.values()]
    written = smallest.path and all(isinstance(value, torch.Tensor | bool | int | float | None) for value in own)
    if written:
        args = "".join(f"{_value(value)}, " for value in smallest.args)
        kwargs = ", ".join(f"{name!r}: {_value(value)}" for name, value in smallest.kwargs.items())
        arguments, path = f"args, kwargs = ({args.strip()}), {{{kwargs}}}", f".get_submodule({smallest.path!r})"
    else:
        arguments, path = (
            (
                'args = tuple(built["args"]) if isinstance(built, dict) else tuple(built[1])\n'
                'kwargs = built.get("kwargs") if isinstance(built, dict) else (*built, {})[2]'
            ),
            "",
        )
    return _SCRIPT.format(
        name=type(smallest.module).__name__ if written else type(entry.model).__name__,
        story=textwrap.fill(" ".join(error.message.split()).replace('"""', "'''").replace("\\", "/"), 110),
        version=torch.__version__,
        file=entry.file.name,
        stem=entry.file.stem,
        function=entry.text.rpartition(":")[2],
        arguments=arguments,
        path=path,
    )


def _value(value: Any) -> str:
    return tensor_code(value) if isinstance(value, torch.Tensor) else repr(value)
