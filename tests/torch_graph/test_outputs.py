"""Objects of any class as outputs: which become dicts of tensors, and which are left as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opbridge.torch_graph.outputs import opened  # noqa: E402


def test_an_object_becomes_a_dict_of_its_tensors() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    cache = SimpleNamespace(keys=[one, "name"], inner=SimpleNamespace(value=two), size=3)
    cache.itself = cache
    assert opened((cache, 5)) == ({"keys": [one, None], "inner": {"value": two}}, 5)


def test_an_object_without_tensors_is_visited_once() -> None:
    visits = []

    class Item:
        __slots__ = ("others",)

        def __init__(self, *others: Any) -> None:
            self.others = others

        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            visits.append(self)
            return {"others": self.others}

    item = Item()
    for _ in range(20):
        item = Item(item, item)
    assert opened(item) is item
    assert len(visits) == 21


def test_a_size_is_not_opened() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            found.append(x.shape[0])
            assert opened(found[0]) is found[0]
            return x + 1

    found: list[Any] = []
    torch.export.export(Sized(), (torch.ones(3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert isinstance(found[0], torch.SymInt)
