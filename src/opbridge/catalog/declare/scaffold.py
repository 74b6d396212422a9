"""Writes the files of a new operator: a declaration that works at once, and a kernel if one is wanted."""

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
from typing import Any

from opbridge.errors import InputError

__all__ = ["Scaffold", "new_operator"]

_PYTHON = '''\
"""The operator $target: $summary.

    opbridge test-op $name.py
    opbridge export $name.py:model -o build/$name
"""

import torch
from torch import Tensor

import opbridge


def samples() -> list[opbridge.Sample]:
    """What the operator is checked on: the ranks, element types and odd cases that it has to serve."""
    generator = torch.Generator().manual_seed(0)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    return [
        opbridge.Sample((random(3, 4), random(4)), name="a row for all"),
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
    """What ``opbridge export`` takes: a model that uses the operator, and its example inputs."""
    return {
        "model": Model(),
        "args": (torch.randn(2, 3), torch.randn(3)),
        "dynamic_shapes": {"x": {0: "rows"}, "bias": None},
        "input_names": ["x", "bias"],
        "output_names": ["y"],
    }
'''

_KERNEL = """\
// The kernel of $target: $summary. It computes what the function in $name.py computes.
#include <cmath>

#include "opbridge.h"

// static, so that two files may have a function of one name.
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
class Scaffold:
    """The files of a new operator.

    Attributes:
        target: ``"namespace::name"``.
        files: What was written, the declaration first.
        commands: What to run next.
    """

    target: str
    files: tuple[Path, ...]
    commands: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The scaffold as JSON data."""
        return {
            "target": self.target,
            "files": [file.as_posix() for file in self.files],
            "commands": list(self.commands),
        }


def new_operator(target: str, folder: str | Path = ".", *, kernel: bool = False) -> Scaffold:
    """Write the file of a new operator: an example to be changed, which exports and passes its checks as it is.

    Args:
        target: ``"mylib::my_op"``.
        folder: Where to; it is made if it is not there.
        kernel: Write a compiled kernel too.

    Raises:
        InputError: The name can't be used, a file is already there, or nothing can be written. Then nothing is.
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
        shlex.join(["opbridge", "export", f"{file}:model", "-o", f"build/{name}"]),
    )
    return Scaffold(target, tuple(texts), commands)


def _checked_name(target: str) -> str:
    namespace, separator, name = target.partition("::")
    if not separator:
        example = target if target.isidentifier() else "my_op"
        raise InputError(
            f"The name {target!r} has no namespace.",
            fix=f"put one before it, the name of your library say: mylib::{example}.",
        )
    if not _TARGET.fullmatch(target):
        raise InputError(
            f"{target!r} is no operator's name: it takes two identifiers of letters, digits and underscores.",
            fix="write for example mylib::my_op.",
        )
    if namespace in _OF_TORCH:
        raise InputError(
            f"{target!r}: the namespace {namespace!r} is PyTorch's own.",
            fix=f"use one of yours: mylib::{name}; or map PyTorch's operator with @opbridge.decomposition({target!r}).",
        )
    if keyword.iskeyword(name) or name in _names_in_file():
        raise InputError(
            f"{target!r}: the Python function can't be called {name!r}, because the file uses this name already.",
            fix=f"choose another, for example {namespace}::{name}_op.",
        )
    if name in sys.stdlib_module_names or name in importlib.metadata.packages_distributions():
        raise InputError(
            f"{target!r}: a file {name}.py would hide the module {name!r} that is installed here.",
            fix=f"choose another name, for example {namespace}::{name}_op.",
        )
    return name


def _names_in_file() -> set[str]:
    """The names that the operator's function must not take: all that the file reads, defines or imports."""
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
    """Write new files: all of them or none."""
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
                f"{error.filename} is already there, and is not overwritten.",
                fix="choose another name, another folder with -o, or remove the file first.",
            ) from error
        if isinstance(error, OSError):
            raise InputError(
                f"The operator can't be written to {str(folder)!r}: {error.strerror}.",
                fix="name a folder that you may write to with -o.",
            ) from error
        raise
