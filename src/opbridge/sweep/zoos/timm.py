"""timm: one model of each family (``timm``), or all models (``timm:all``), with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from opbridge.sweep.zoos.trying import BATCH, first_that_runs, without_zeros

__all__ = ["PACKAGE", "all_names", "build", "names"]

PACKAGE = "timm"
_SMALL = ("atto", "femto", "pico", "nano", "xxs", "xxtiny", "xtiny", "extra_tiny", "tiny", "mini", "xs", "small", "_s")
"""Words for small variants in the names of models, the smallest first."""


def names() -> list[str]:
    """A small model of each family; a family is a module of timm."""
    import timm

    return sorted({_smallest(timm.list_models(module=module)) for module in timm.list_modules()} - {""})


def all_names() -> list[str]:
    """All models, but the ones that timm made for its own tests."""
    import timm

    return [name for name in timm.list_models() if not name.startswith("test_")]


def _smallest(models: list[str]) -> str:
    """The model whose name says that it is small; the first one if none says so."""
    real = [name for name in models if not name.startswith("test_")]
    ranks = [next((rank for rank, word in enumerate(_SMALL) if word in name), len(_SMALL)) for name in real]
    return real[ranks.index(min(ranks))] if real else ""


def build(name: str) -> Mapping[str, Any]:
    """The model with a batch of two images of the smallest size that it takes; the batch is dynamic."""
    import timm

    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    own = config.input_size if config is not None else (3, 224, 224)
    sizes = [] if config is not None and config.fixed_input_size else [64, 96, 128]
    return first_that_runs(_candidates(name, own, [*(size for size in sizes if size < own[-1]), own[-1]]))


def _candidates(name: str, own: tuple[int, int, int], sizes: list[int]) -> Iterator[Callable[[], Mapping[str, Any]]]:
    model = functools.cache(lambda: _model(name))
    for size in sizes:
        yield functools.partial(_made, model, (2, own[0], size, size * own[1] // own[2]))


def _made(model: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Mapping[str, Any]:
    return {"model": model(), "args": (torch.randn(shape),), "dynamic_shapes": (BATCH,)}


def _model(name: str) -> torch.nn.Module:
    import timm

    return without_zeros(timm.create_model(name, pretrained=False))
