"""How much two boxes overlap, as a share of what both cover or of the first box."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from opbridge.errors import InputError

__all__ = ["check_choice", "overlap"]

_Measure = Callable[[Tensor], Tensor]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        InputError: It is another one.
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name} is {value!r}, which is not one of {listed}.", fix=f"pass one of these as {name}.")


def overlap(
    boxes1: Tensor,
    boxes2: Tensor,
    mode: str,
    aligned: bool,
    *,
    size: _Measure,
    shared: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The overlap of each box of ``boxes1`` with each box of ``boxes2``; 0 for boxes without area.

    Args:
        boxes1: (n, numbers)
        boxes2: (m, numbers)
        mode: ``"iou"`` divides the shared area by the covered one, ``"iof"`` by the area of the first box.
        aligned: Whether box i is compared with box i alone.
        size: The areas (...) of boxes (..., numbers).
        shared: The areas (...) that boxes share, which may be broadcast.

    Returns:
        (n, m), or (n,) if ``aligned``.

    Raises:
        InputError: There is no such mode.
    """
    check_choice("mode", mode, ("iou", "iof"))
    first, second = (boxes1, boxes2) if aligned else (boxes1[:, None], boxes2[None])
    common, whole = shared(first, second), size(first)
    if mode == "iou":
        whole = whole + size(second) - common
    return torch.where(whole > 0, common / torch.where(whole > 0, whole, 1), 0)
