"""Window functions of a dynamic length, which torch's operators would make constant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


def _window(name: str, formula: Callable[..., Tensor], *defaults: float) -> Callable[..., Any]:
    @rewrite(f"torch.{name}")
    def window(
        original: Callable[..., Tensor], window_length: Any, periodic: bool = True, *numbers: float, **options: Any
    ) -> Any:
        names = ("alpha", "beta") if len(defaults) == 2 else ("beta",)
        given = dict(zip(names, numbers, strict=False)) | {key: options.pop(key) for key in names if key in options}
        if not isinstance(window_length, torch.SymInt):
            return NotImplemented
        dtype = options.get("dtype") or torch.get_default_dtype()
        place = torch.arange(window_length, dtype=torch.int64, device=options.get("device")).to(dtype)
        # Of a symmetric window the last element is the first one again.
        turns = place / torch.sym_max(window_length - (not periodic), 1)
        values = formula(turns, *[given.get(key, value) for key, value in zip(names, defaults, strict=False)])
        return torch.where(torch.scalar_tensor(window_length, dtype=torch.int64) == 1, 1.0, values).to(dtype)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"""The window of a dynamic length, of which torch would make a constant.

    {name}(int window_length, bool periodic=True, ..., *, ScalarType? dtype=None, ...) -> Tensor
    """
    return window


def _bartlett(turns: Tensor) -> Tensor:
    return 1 - (2 * turns - 1).abs()


def _blackman(turns: Tensor) -> Tensor:
    return 0.42 - 0.5 * (2 * math.pi * turns).cos() + 0.08 * (4 * math.pi * turns).cos()


def _hamming(turns: Tensor, alpha: float = 0.5, beta: float = 0.5) -> Tensor:
    return alpha - beta * (2 * math.pi * turns).cos()


def _kaiser(turns: Tensor, beta: float) -> Tensor:
    inside = (1 - (2 * turns - 1).square()).clamp(min=0).sqrt()
    return torch.i0(beta * inside) / torch.i0(torch.full((), float(beta), dtype=turns.dtype))


bartlett_window = _window("bartlett_window", _bartlett)
blackman_window = _window("blackman_window", _blackman)
hann_window = _window("hann_window", _hamming)
hamming_window = _window("hamming_window", _hamming, 0.54, 0.46)
kaiser_window = _window("kaiser_window", _kaiser, 12.0)
