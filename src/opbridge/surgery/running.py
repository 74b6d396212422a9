"""Runs changed models, to compare them with their originals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import ml_dtypes  # noqa: F401 - registers its dtype names with NumPy
import numpy as np
import onnx_ir as ir

from opbridge.atomic import TemporaryFolder
from opbridge.engines import get
from opbridge.engines.base import Session
from opbridge.onnx_model.write import save_model
from opbridge.surgery.dimensions import size_of, sizes_of

__all__ = ["Feeds", "loaded", "random_feeds"]

Feeds = Mapping[str, np.ndarray]


@contextlib.contextmanager
def loaded(model: ir.Model, engine: str) -> Iterator[Session]:
    """Load the model in an engine for the duration of the context.

    Raises:
        EngineError: The engine rejects the model.
    """
    with TemporaryFolder() as folder:
        # An engine maps weights in a separate file, but copies weights in the model file.
        save_model(model, Path(folder), external_data=True)
        yield get(engine).load_lean(Path(folder) / "model.onnx")


def random_feeds(model: ir.Model, numbers: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Create random inputs: normally distributed numbers, and integers 0 and 1.

    Args:
        model: The model.
        numbers: The sizes of named dimensions; a dimension without a size gets 2.
        seed: The seed of the random numbers.
    """
    generator = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        if value.const_value is not None or value.dtype is None:
            continue
        sizes = [size_of(size, numbers) or 2 for size in sizes_of(value) or ()]
        dtype = np.dtype(value.dtype.numpy())
        if dtype.kind in "iub":
            feeds[str(value.name)] = generator.integers(0, 2, sizes).astype(dtype)
        else:
            feeds[str(value.name)] = generator.standard_normal(sizes).astype(dtype)
    return feeds
