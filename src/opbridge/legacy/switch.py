"""The state of the bridge: whether it is on, and which old declarations it has honoured. It does not import torch."""

from __future__ import annotations

import atexit
import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal

from opbridge.records import Record

__all__ = [
    "Bridged",
    "CustomNode",
    "Kind",
    "bridged",
    "custom_nodes",
    "disable",
    "enable",
    "is_on",
    "note",
    "note_node",
    "noted_if_done",
    "until_off",
]

Kind = Literal["autograd.Function", "registered symbolic", "old argument", "TorchScript module"]
"""The kinds of old declarations: an autograd.Function with a ``symbolic``, a registered symbolic function, an argument
of an older ``torch.onnx.export``, and a module that only torch's TorchScript exporter can export."""


@dataclasses.dataclass(frozen=True)
class Bridged(Record):
    """One old declaration that was honoured.

    Attributes:
        kind: The kind of declaration.
        name: The name of the autograd.Function, the operator, the argument or the module.
        source: ``file:line`` of the declaration; empty if it has none.
        count: The number of uses since the bridge was turned on.
        notes: Remarks for the user, such as shapes that are unknown while the model is exported.
    """

    kind: Kind
    name: str
    source: str = ""
    count: int = 1
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class CustomNode(Record):
    """A custom operator in an exported file, without a body: an engine needs a kernel for it.

    Attributes:
        file: The file.
        operator: "domain::Operator".
    """

    file: str
    operator: str


class _Switch:
    """The state of the process. Uses may be nested or concurrent: the bridge is turned off when the last one ends."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open: list[_Enabled] = []
        self.undo = ExitStack()
        self.bridged: dict[tuple[str, str, str], Bridged] = {}
        self.custom_nodes: dict[CustomNode, None] = {}

    def add(self, handle: _Enabled) -> None:
        with self.lock:
            if not self.open:
                self.bridged.clear()
                self.custom_nodes.clear()
                self.undo = _installed()
                atexit.register(self.undo.close)  # while the modules of torch are still there
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
                atexit.unregister(self.undo.close)


def _installed() -> ExitStack:
    """Apply all changes to torch, or none if one fails."""
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
    """One call of :func:`enable`, which ends with its ``with`` block or with :func:`disable`."""

    is_block = False

    def __enter__(self) -> _Enabled:
        self.is_block = True
        return self

    def __exit__(self, *error: object) -> None:
        _switch.remove(self)


def enable() -> _Enabled:
    """Turn the bridge on: honour ``symbolic`` of autograd.Functions, registered symbolic functions, and old names.

    While the bridge is on, ``torch.onnx.export``, ``opbridge.export`` and ``opbridge.diagnose`` honour the old
    declarations in every thread. ``with opbridge.legacy.enable(): ...`` turns it off at the end of the block, also
    after an error. After a plain call, :func:`disable` turns it off. Uses may be nested: the bridge is turned off, and
    torch is restored, when the last one ends.
    """
    handle = _Enabled()
    _switch.add(handle)
    return handle


def disable() -> None:
    """Undo the latest plain call of :func:`enable` in any thread. A ``with`` block is not affected."""
    _switch.remove(None)


def is_on() -> bool:
    """Return whether the bridge is on."""
    return bool(_switch.open)


@contextmanager
def noted_if_done() -> Iterator[None]:
    """Forget what was recorded inside the block if it raises: nothing was honoured in a model that does not exist."""
    with _switch.lock:
        before = dict(_switch.bridged), dict(_switch.custom_nodes)
    try:
        yield
    except BaseException:
        with _switch.lock:
            _switch.bridged, _switch.custom_nodes = before
        raise


def until_off(change: AbstractContextManager[Any]) -> None:
    """Enter a context that lasts until the bridge is turned off."""
    with _switch.lock:
        _switch.undo.enter_context(change)


def bridged() -> tuple[Bridged, ...]:
    """Return the declarations honoured since the bridge was last turned on, in order of first use.

    Those of an export that failed or was refused are not among them.
    """
    with _switch.lock:
        return tuple(_switch.bridged.values())


def custom_nodes() -> tuple[CustomNode, ...]:
    """Return the custom operators without bodies in the files written since the bridge was last turned on."""
    with _switch.lock:
        return tuple(_switch.custom_nodes)


def note_node(file: str, operator: str) -> None:
    """Record a custom operator without a body, for :func:`custom_nodes`."""
    with _switch.lock:
        _switch.custom_nodes[CustomNode(file, operator)] = None


def note(kind: Kind, name: str, source: str = "", *notes: str, count: int = 1) -> None:
    """Count one use of an old declaration, for :func:`bridged`, and add notes to it."""
    key = (kind, name, source)
    with _switch.lock:
        earlier = _switch.bridged.get(key, Bridged(kind, name, source, 0))
        all_notes = tuple(dict.fromkeys((*earlier.notes, *notes)))
        _switch.bridged[key] = dataclasses.replace(earlier, count=earlier.count + count, notes=all_notes)
