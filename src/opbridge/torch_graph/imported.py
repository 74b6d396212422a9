"""Modules that ``forward`` is the first to import during a capture.

Their code runs as outside a capture, so that tensors in their global variables have data, and remain usable afterwards.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import threading
import types
from collections.abc import Iterator, Sequence

from opbridge.torch_graph.subgraphs import outside_capture

__all__ = ["importing_outside"]


class _Finder:
    """Finds modules with the other finders, and has their loaders run the modules' code outside the capture.

    What another thread imports meanwhile is no concern of the capture, whose modes are those of all threads.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of a module; None for torch's own, in another thread, or if no finder knows it."""
        # A capture imports parts of torch, and leaving it does too.
        if name.partition(".")[0] == "torch" or threading.get_ident() != self._thread:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _run_outside(spec.loader)
                return spec
        return None


def _run_outside(loader: object) -> None:
    run = getattr(loader, "exec_module", None)
    if run is None or isinstance(loader, type):  # A module that is part of Python, or a folder without code.
        return

    def exec_module(module: types.ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # Some loaders load many modules.
        with outside_capture():
            run(module)

    with contextlib.suppress(AttributeError):  # A loader without attributes of its own.
        loader.exec_module = exec_module  # type: ignore[attr-defined]


@contextlib.contextmanager
def importing_outside() -> Iterator[None]:
    """Run the code of modules that are imported inside the block outside the capture."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
