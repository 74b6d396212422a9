"""Whether the bridge is on, and what it has bridged since. Imports no torch, so that asking costs nothing."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

__all__ = ["Bridged", "bridged", "disable", "enable", "is_on", "note"]


@dataclasses.dataclass(frozen=True)
class Bridged:
    """One old declaration that was honoured.

    Attributes:
        kind: "autograd.Function", "registered symbolic", "old argument" or "old exporter".
        name: The Function, the operator or the argument.
        source: ``file:line`` of the declaration, where it has one.
        count: How often it was used since the bridge was turned on.
        notes: What the user should know: shapes that are unknown, arguments that have no meaning any more.
    """

    kind: str
    name: str
    source: str = ""
    count: int = 1
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON data."""
        return {**dataclasses.asdict(self), "notes": list(self.notes)}


class _Switch:
    """The state of the process. Nested and concurrent uses are counted: the last one out turns the bridge off."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open: list[_Enabled] = []
        self.undo = ExitStack()
        self.bridged: dict[tuple[str, str, str], Bridged] = {}

    def add(self, handle: _Enabled) -> None:
        with self.lock:
            if not self.open:
                self.bridged.clear()
                self.undo = _installed()
            self.open.append(handle)

    def remove(self, handle: _Enabled | None) -> None:
        with self.lock:
            if handle is None:
                handle = next((one for one in reversed(self.open) if not one.is_block), None)
            if handle is None or handle not in self.open:
                return
            self.open.remove(handle)
            if not self.open:
                self.undo.close()


def _installed() -> ExitStack:
    """Put every change to torch in force, or none of them."""
    from opbridge.legacy.exporter import installed
    from opbridge.legacy.hooks import install
    from opbridge.legacy.moved_names import restored

    install()
    changes: tuple[Callable[[], AbstractContextManager[Any]], ...] = (restored, installed)
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change())
        return stack.pop_all()


_switch = _Switch()


class _Enabled:
    """One :func:`enable` that is to be undone: by leaving its ``with`` block, or by :func:`disable`."""

    is_block = False

    def __enter__(self) -> _Enabled:
        self.is_block = True
        return self

    def __exit__(self, *error: object) -> None:
        _switch.remove(self)


def enable() -> _Enabled:
    """Honour the old declarations: ``symbolic`` of autograd.Functions, registered symbolics, old names and arguments.

    Until it is undone, ``torch.onnx.export``, ``opbridge.export`` and ``opbridge.diagnose`` of every thread honour
    them. As ``with opbridge.legacy.enable(): ...`` it is undone when the block is left, also by an error; as a plain
    call by :func:`disable`. Uses may be nested: the last one undone turns the bridge off, and torch is as it was.
    """
    handle = _Enabled()
    _switch.add(handle)
    return handle


def disable() -> None:
    """Undo the latest plain :func:`enable` that is still in force, of any thread; a ``with`` block ends by itself."""
    _switch.remove(None)


def is_on() -> bool:
    """Whether the bridge is on."""
    return bool(_switch.open)


def bridged() -> tuple[Bridged, ...]:
    """What was honoured since the bridge was turned on, in order of first use; readable after :func:`disable`, too."""
    with _switch.lock:
        return tuple(_switch.bridged.values())


def note(kind: str, name: str, source: str = "", *notes: str, count: int = 1) -> None:
    """Count one use of an old declaration, for :func:`bridged`."""
    key = (kind, name, source)
    with _switch.lock:
        earlier = _switch.bridged.get(key, Bridged(kind, name, source, 0))
        said = tuple(dict.fromkeys((*earlier.notes, *notes)))
        _switch.bridged[key] = dataclasses.replace(earlier, count=earlier.count + count, notes=said)
