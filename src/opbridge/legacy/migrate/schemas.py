"""Reads the names and defaults of arguments from schemas of torch operators; old symbolic functions omit them."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Script

__all__ = ["Argument", "schemas_of"]

_VERBATIM = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?|None|True|False|\[[\d, .-]*\]|'[^']*'|\"[^\"]*\"")


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a schema.

    Attributes:
        name: The name of the argument.
        default: The Python source of the default; None without a default.
        keyword_only: Whether the argument is passed by keyword.
    """

    name: str
    default: str | None
    keyword_only: bool


def schemas_of(script: Script, target: str) -> list[list[Argument]]:
    """Return the schemas of an operator and its overloads, from ``define(...)`` calls in the script and from torch."""
    namespace, _, name = target.partition("::")
    return [_arguments(text) for text in (*_defined(script, name), *_of_torch(namespace, name))]


def _defined(script: Script, name: str) -> Iterator[str]:
    for string in script.walk(cst.SimpleString):
        text = str(string.evaluated_value)
        if re.match(rf"(\w+::)?{re.escape(name)}(\.\w+)?\(.*\)\s*->", text, re.DOTALL):
            yield text


def _of_torch(namespace: str, name: str) -> Iterator[str]:
    import torch

    if namespace == "torchvision":
        try:
            importlib.import_module("torchvision")
        except ImportError:
            return
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        return
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        if not schema.is_mutable and "Dimname" not in str(schema):
            yield str(schema)


def _arguments(schema: str) -> list[Argument]:
    inside = schema[schema.index("(") + 1 : schema.rindex(")", 0, schema.index("->"))]
    found = []
    keyword_only = False
    for part in re.split(r",(?![^(\[]*[)\]])", inside):
        part = part.strip()
        if part == "*":
            keyword_only = True
        elif part:
            before, has_default, default = part.partition("=")
            source = default if _VERBATIM.fullmatch(default) else "None"
            found.append(Argument(before.split()[-1], source if has_default else None, keyword_only))
    return found
