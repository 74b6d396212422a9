"""Torch operators as the targets of graph nodes: their names, and the functional form of an in-place one."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["display_name", "functional_target", "target_key"]


def target_key(target: Any) -> Any:
    """What identifies an FX node's target: ``"aten::add.Tensor"`` for an overload, else the callable itself."""
    if isinstance(target, torch._ops.OpOverload):
        name = target.name()
        return name if "." in name.split("::")[-1] else f"{name}.{target._overloadname}"
    return target


def functional_target(target: Any) -> Any:
    """The functional form of an in-place operator (``aten::relu`` of ``aten::relu_``); any other target as it is."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return target
    name = target._schema.name.split("::")[1]
    packet = getattr(getattr(torch.ops, target.namespace), name.removesuffix("_"), None) if name[-1] == "_" else None
    return getattr(packet, target._overloadname, target) if packet is not None else target


def display_name(key: Any) -> str:
    """A target key as users read it: "aten::cummax", "aten::add.Tensor", "torch::cond"."""
    return key.removesuffix(".default") if isinstance(key, str) else f"torch::{getattr(key, '__name__', key)}"
