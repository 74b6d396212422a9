"""Writes the files of a new operator: a working declaration and an optional kernel."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.metadata
import keyword
import re
import shlex
import string
import sys
from collections.abc import Mapping
from pathlib import Path

from opbridge.errors import InputError
from opbridge.records import Record

__all__ = ["Scaffold", "new_operator"]

_PYTHON = '''\
"""The operator $target: $summary.

    opbridge test-op $name.py
    opbridge export $name.py:model -o bundle
"""

import torch
from torch import Tensor

import opbridge


def samples() -> list[opbridge.Sample]:
    """The test inputs: the ranks, element types and special cases that the operator must support."""
    generator = torch.Generator().manual_seed(0)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    return [
        opbridge.Sample((random(3, 4), random(4)), name="one row"),
        opbridge.Sample((random(2, 1, 3), random(4, 1)), {"alpha": 0.5}, name="broadcast"),
        opbridge.Sample((random(), random()), name="rank 0"),
        opbridge.Sample((random(0, 4), random(4)), name="empty"),
        opbridge.Sample((random(3, 4).T, random(3)), name="transposed"),
        opbridge.Sample((random(5).double(), random(5).double()), name="float64"),
        opbridge.Sample((random(2, 6).half(), random(6).half()), name="float16"),
        opbridge.Sample((random(2, 6).bfloat16(), random(6).bfloat16()), name="bfloat16"),
    ]


@opbridge.operator("$target", samples=samples)
def $name(x: Tensor, bias: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x * sigmoid(alpha * x) + bias, broadcast."""
    return x * torch.sigmoid(alpha * x) + bias

$attach
class Model(torch.nn.Module):
    def forward(self, x, bias):
        return $name(x, bias, 0.5)


def model():
    """The entry for ``opbridge export``: a model that uses the operator, and its example inputs."""
    return {
        "model": Model(),
        "args": (torch.randn(2, 3), torch.randn(3)),
        "dynamic_shapes": {"x": {0: "rows"}, "bias": None},
        "input_names": ["x", "bias"],
        "output_names": ["y"],
    }
'''

_KERNEL = """\
// The kernel of $target: $summary, the same as the function in $name.py.
#include <cmath>

#include "opbridge.h"

// static, so that two files can have functions of the same name.
template <class T>
static void ${name}_kernel(opbridge::Call& call) {
  using C = opbridge::compute_t<T>;  // float for half and bfloat16, otherwise T
  const C alpha = static_cast<C>(call.attribute_float("alpha"));
  const auto function = [alpha](C x, C bias) { return x / (1 + std::exp(-alpha * x)) + bias; };
  opbridge::elementwise(call, call.output<T>(0), function, call.input<T>(0), call.input<T>(1));
}

OPBRIDGE_OPERATOR(${name}_kernel, opbridge::shape_of_broadcast, "$target(T x, T bias, float alpha=1.0) -> T y",
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16>)
"""

_ATTACH = '\n$name.kernel("$name.h")\n\n'
_SUMMARY = "x * sigmoid(alpha * x) + bias"
_TARGET = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
_OF_TORCH = ("aten", "prim", "prims")


@dataclasses.dataclass(frozen=True)
class Scaffold(Record):
    """The files of a new operator.

    Attributes:
        target: ``"namespace::name"``.
        files: The written files, the declaration first.
        commands: The commands to run next.
    """

    target: str
    files: tuple[Path, ...]
    commands: tuple[str, ...]


def new_operator(target: str, folder: str | Path = ".", *, kernel: bool = False) -> Scaffold:
    """Write the files of a new operator: an example to edit, which exports and passes its tests unchanged.

    Args:
        target: The operator's name: ``"mylib::my_op"``.
        folder: The folder to write to, which is created if needed.
        kernel: Whether to write a C++ kernel too.

    Raises:
        InputError: The name cannot be used, a file already exists, or the folder is not writable. No file is written.
    """
    name = _checked_name(target)
    values = {"target": target, "name": name, "summary": _SUMMARY}
    attach = string.Template(_ATTACH).substitute(values) if kernel else ""
    folder = Path(folder)
    texts = {folder / f"{name}.py": string.Template(_PYTHON).substitute(values, attach=attach)}
    if kernel:
        texts[folder / f"{name}.h"] = string.Template(_KERNEL).substitute(values)
    _write(folder, texts)
    file = (folder / f"{name}.py").as_posix()
    commands = (
        shlex.join(["opbridge", "test-op", file]),
        shlex.join(["opbridge", "export", f"{file}:model", "-o", (folder / "bundle").as_posix()]),
    )
    return Scaffold(target, tuple(texts), commands)


def _checked_name(target: str) -> str:
    namespace, separator, name = target.partition("::")
    if not separator:
        example = target if target.isidentifier() else "my_op"
        raise InputError(
            f"The name {target!r} has no namespace.",
            fix=f"add a namespace, such as the name of your library: mylib::{example}.",
        )
    if not _TARGET.fullmatch(target):
        raise InputError(
            f"{target!r} is not a valid operator name: it needs two identifiers of letters, digits and underscores.",
            fix="write, for example, mylib::my_op.",
        )
    if namespace in _OF_TORCH:
        raise InputError(
            f"{target!r}: the namespace {namespace!r} belongs to PyTorch.",
            fix=f"use your own: mylib::{name}; or map PyTorch's operator with @opbridge.decomposition({target!r}).",
        )
    if keyword.iskeyword(name) or name in _names_in_file():
        raise InputError(
            f"{target!r}: the Python function can't be named {name!r}, because the file already uses this name.",
            fix=f"choose another name, for example {namespace}::{name}_op.",
        )
    if name in sys.stdlib_module_names or name in importlib.metadata.packages_distributions():
        raise InputError(
            f"{target!r}: a file {name}.py would hide the installed module {name!r}.",
            fix=f"choose another name, for example {namespace}::{name}_op.",
        )
    return name


def _names_in_file() -> set[str]:
    """The names that the operator's function must not have: those that the file reads, defines or imports."""
    example = string.Template(_PYTHON).substitute(target="a::_", name="_", summary="", attach="")
    found: set[str] = set()
    for node in ast.walk(ast.parse(example)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias):
            found.add(node.name)
    return found


def _write(folder: Path, texts: Mapping[Path, str]) -> None:
    """Write all of the new files or none."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            with file.open("x", encoding="utf-8", newline="\n") as stream:
                written.append(file)
                stream.write(text)
    except BaseException as error:
        for file in written:
            file.unlink()
        for place in missing:
            with contextlib.suppress(OSError):
                place.rmdir()
        if isinstance(error, FileExistsError) and error.filename in map(str, texts):
            raise InputError(
                f"{error.filename} already exists and is not overwritten.",
                fix="choose another name, another folder with -o, or remove the file first.",
            ) from error
        if isinstance(error, OSError):
            raise InputError(
                f"The operator can't be written to {str(folder)!r}: {error.strerror}.",
                fix="pass a writable folder with -o.",
            ) from error
        raise
