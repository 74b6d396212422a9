"""``x.data``, whose result torch.export does not trace and takes for a constant."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.Tensor.data.__get__")
def data(original: Callable[..., Tensor], self: Tensor) -> Tensor:
    """The tensor without its history: ``detach()``, which shares its memory too."""
    return self.detach()
