"""Captures a model for the values of its example inputs, with internals of torch.

``torch._functorch.config.fake_tensor_propagate_real_tensors`` makes torch use these values, as
``torch.export.draft_export`` does, which also writes log files and changes the declared sizes.
``ShapeEnv.guard_or_defer_runtime_assert`` shows where the program depends on them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from opbridge.torch_graph.sources import AssumedValue, frames_of_stack

__all__ = ["assuming_values"]


@contextlib.contextmanager
def assuming_values(assumed: list[AssumedValue]) -> Iterator[None]:
    """Let Python use the values that tensors have for the example inputs during a capture.

    torch writes a check of each of them into the captured program.

    Args:
        assumed: A list to which each use of such a value is appended.
    """
    from torch._functorch import config
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own = ShapeEnv.guard_or_defer_runtime_assert
    prefix = "propagate_real_tensors: "

    def noting(env: Any, condition: Any, message: str, *args: Any, **kwargs: Any) -> Any:
        if message.startswith(prefix):
            value = message.rpartition(" == ")[2]
            assumed.append(AssumedValue(str(condition), value, frames_of_stack()))
        return own(env, condition, message, *args, **kwargs)

    ShapeEnv.guard_or_defer_runtime_assert = noting  # type: ignore[method-assign, assignment]
    try:
        with config.patch(fake_tensor_propagate_real_tensors=True):  # type: ignore[attr-defined]
            yield
    finally:
        ShapeEnv.guard_or_defer_runtime_assert = own  # type: ignore[method-assign]
