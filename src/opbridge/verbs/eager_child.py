"""The program that runs a bundle's model in eager PyTorch: ``python -m opbridge.verbs.eager_child``.

It answers a "load" and any number of "measure" as an engine's child process does
(:mod:`opbridge.engines.process.child`), so that times and memory are measured in one way. :mod:`opbridge.verbs.bench`
is the parent.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from opbridge.bundle.bundle import read_bundle
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.process.child import serve
from opbridge.engines.process.measuring import measured
from opbridge.proof.verify.inputs import InputSpecs
from opbridge.proof.verify.options import VerifyOptions
from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.state import keeping_state
from opbridge.verbs.references import CapturedModel, find_reference

__all__ = ["main"]

Arrays = dict[str, np.ndarray]


def main() -> int:
    """Answer requests until the parent closes the pipe."""
    return serve(_Eager())


class _Eager:
    """The reference of a bundle; eager PyTorch if it is a PyTorch model."""

    def __init__(self) -> None:
        self._model: CapturedModel | None = None

    def __call__(self, message: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        if message["verb"] == "load":
            return self._load(message)
        assert self._model is not None
        if message["threads"] is not None:
            torch.set_num_threads(message["threads"])
        captured = self._model.captured
        specs = InputSpecs(captured)
        args, kwargs = specs.arguments(specs.given(arrays)[0])
        module = captured.module or captured.program.module()
        run: Callable[[], object] = functools.partial(module, *args, **kwargs)
        with without_kernels(), keeping_state(module), frozen(module), torch.inference_mode():
            return measured(run, message["duration"]), {}

    def _load(self, message: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """Whether there is a PyTorch model, and example inputs."""
        bundle = read_bundle(message["bundle"], trust=message["trust"])
        found = find_reference(bundle, message["reference"], message["ops"], lambda stage: None)
        self._model = found if isinstance(found, CapturedModel) else None
        feeds = {} if message["has_inputs"] else dict(found.example_feeds(VerifyOptions()))
        return {"is_torch": self._model is not None}, feeds


if __name__ == "__main__":
    sys.exit(main())
