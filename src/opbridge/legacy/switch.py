"""The state of the bridge: whether it is on, and which old declarations it has honoured. It does not import torch."""

from __future__ import annotations

import atexit
import contextvars
import dataclasses
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal

from opbridge.records import Record

__all__ = [
    "Bridged",
    "CustomNode",
    "Kind",
    "Use",
    "bridged",
    "custom_nodes",
    "disable",
    "enable",
    "exporting",
    "is_on",
    "keep_uses",
    "note",
    "note_node",
    "until_off",
    "written",
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
        count: The number of uses in the exports that were written since the bridge was turned on. For a Function or a
            registered symbolic, it is the number of its calls in these models.
        notes: Remarks for the user, such as shapes that are unknown while the model is exported.
    """

    kind: Kind
    name: str
    source: str = ""
    count: int = 1
    notes: tuple[str, ...] = ()


Use = tuple[Kind, str, str]
"""The kind, name and source of a declaration."""


@dataclasses.dataclass(frozen=True)
class CustomNode(Record):
    """A custom operator in an exported file, without a body: an engine needs a kernel for it.

    Attributes:
        file: The file.
        operator: "domain::Operator".
    """

    file: str
    operator: str


@dataclasses.dataclass
class _Noted:
    """What one export used, or all exports since the bridge was turned on."""

    bridged: dict[Use, Bridged] = dataclasses.field(default_factory=dict)
    custom_nodes: dict[CustomNode, None] = dataclasses.field(default_factory=dict)

    def add(self, use: Use, count: int, notes: tuple[str, ...]) -> None:
        earlier = self.bridged.get(use, Bridged(*use, 0))
        all_notes = tuple(dict.fromkeys((*earlier.notes, *notes)))
        self.bridged[use] = dataclasses.replace(earlier, count=earlier.count + count, notes=all_notes)


_export: contextvars.ContextVar[_Noted | None] = contextvars.ContextVar("opbridge_legacy_export", default=None)
_uses: weakref.WeakKeyDictionary[Any, Mapping[Use, int]] = weakref.WeakKeyDictionary()


class _Switch:
    """The state of the process. Uses may be nested or concurrent: the bridge is turned off when the last one ends."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open: list[_Enabled] = []
        self.undo = ExitStack()
        self.noted = _Noted()

    def add(self, handle: _Enabled) -> None:
        with self.lock:
            if not self.open:
                self.noted = _Noted()
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
def exporting() -> Iterator[None]:
    """Record what one export uses. If the block raises, it is forgotten: nothing was honoured in a model that is lost.

    The uses of symbolic functions are those in the models for which the block calls :func:`written`, because a capture
    or a translation may be repeated.
    """
    noted = _Noted()
    token = _export.set(noted)
    try:
        yield
    finally:
        _export.reset(token)
    with _switch.lock:
        total = _switch.noted
        for use, item in noted.bridged.items():
            if item.count:
                total.add(use, item.count, item.notes)
        total.custom_nodes.update(noted.custom_nodes)


def keep_uses(model: Any, uses: Counter[Use]) -> None:
    """Remember how often a translated model uses each symbolic function, for :func:`written`."""
    _uses[model] = uses


def written(model: Any) -> None:
    """Count the uses of symbolic functions in a translated model, which the current export writes."""
    for (kind, name, source), count in _uses.get(model, {}).items():
        note(kind, name, source, count=count)


def until_off(change: AbstractContextManager[Any]) -> None:
    """Enter a context that lasts until the bridge is turned off."""
    with _switch.lock:
        _switch.undo.enter_context(change)


def bridged() -> tuple[Bridged, ...]:
    """Return the declarations honoured since the bridge was last turned on, in order of first use.

    Those of an export that failed or was refused are not among them.
    """
    with _switch.lock:
        return tuple(_switch.noted.bridged.values())


def custom_nodes() -> tuple[CustomNode, ...]:
    """Return the custom operators without bodies in the files written since the bridge was last turned on."""
    with _switch.lock:
        return tuple(_switch.noted.custom_nodes)


def note_node(file: str, operator: str) -> None:
    """Record a custom operator without a body, for :func:`custom_nodes`."""
    with _switch.lock:
        (_export.get() or _switch.noted).custom_nodes[CustomNode(file, operator)] = None


def note(kind: Kind, name: str, source: str = "", *notes: str, count: int = 1) -> None:
    """Count a use of an old declaration in the current export, for :func:`bridged`, and add notes to it.

    Outside an export, as in ``opbridge.diagnose``, nothing is written, and nothing is recorded.
    """
    noted = _export.get()
    if noted is not None:
        noted.add((kind, name, source), count, notes)
