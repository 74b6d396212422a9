"""Finds the location of a problem in the user's source.

A traceback through torch has about fifty frames, of which one or two are the user's. :func:`source_of_error` and
:func:`source_of_node` select the innermost frame that does not belong to torch, another installed library, the standard
library or opbridge. If the model itself comes from a library (torchvision's SSD), they select the innermost frame of
that library.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

__all__ = [
    "AssumedValue",
    "FixedSize",
    "SourceLine",
    "frames_of_error",
    "frames_of_node",
    "frames_of_stack",
    "frames_outside_torch",
    "full_path",
    "innermost",
    "is_internal",
    "module_path",
    "source_of_error",
    "source_of_function",
    "source_of_node",
    "source_of_stack",
    "source_of_stack_trace",
    "source_of_traceback",
    "variable_at",
]

_LIBRARIES = ("torchvision", "torchaudio", "transformers", "timm", "onnxscript", "onnx_ir", "onnx", "numpy")
_INSTALLED = ("site-packages", "dist-packages")
_INTERACTIVE = ("<stdin>", "<ipython-input", "<python-input")
_STACK_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.*))?$')


@dataclasses.dataclass(frozen=True)
class SourceLine:
    """One line of Python source.

    Attributes:
        file: The absolute path of the file, or the interpreter's name for it (``<stdin>``).
        line: The line number, from 1.
        function: The enclosing function, with its class if known, as in ``Detector.forward``.
        text: The stripped text of the line; empty if the file cannot be read.
    """

    file: str
    line: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        """``file:line``, relative to the current directory or to the folder of installed libraries."""
        parts = Path(self.file).parts
        installed = [index for index, part in enumerate(parts) if part in _INSTALLED]
        if installed:
            return f"{Path(*parts[installed[-1] + 1 :]).as_posix()}:{self.line}"
        path, here = Path(self.file), Path.cwd()
        return f"{path.relative_to(here).as_posix() if path.is_relative_to(here) else self.file}:{self.line}"

    @property
    def is_installed(self) -> bool:
        """Whether the line is in an installed library, which the user should not edit."""
        return not self.file.startswith(_INTERACTIVE) and _is_installed(self.file)

    def to_dict(self) -> dict[str, object]:
        """The line as JSON data; ``source`` is :meth:`__str__`."""
        return {"source": str(self), "line": self.line, "function": self.function, "text": self.text}


@dataclasses.dataclass(frozen=True)
class FixedSize:
    """A dynamic size that a line of the model specializes to a number.

    Attributes:
        dimensions: The dimensions of this size in torch's notation: ``L['x'].size()[0]``.
        size: The number.
        frames: The stack of executing lines, outermost first.
    """

    dimensions: tuple[str, ...]
    size: int
    frames: tuple[SourceLine, ...]


@dataclasses.dataclass(frozen=True)
class AssumedValue:
    """A value of a tensor that Python reads during a capture and that is taken from the example inputs.

    Attributes:
        condition: What is assumed, on torch's symbols: ``Eq(u0, 1)``.
        value: The value: ``"True"``, ``"3"``.
        frames: The stack of executing lines, outermost first.
        is_branch: Whether the value decides which function of ``torch.cond`` or ``torch.while_loop`` runs.
    """

    condition: str
    value: str
    frames: tuple[SourceLine, ...]
    is_branch: bool = False


@functools.cache
def _folder_of_package(name: str) -> str | None:
    file = _file_of_module(sys.modules.get(name))
    return str(Path(file).resolve().parent) + "/" if file else None


def _file_of_module(module: Any) -> str | None:
    """The file of an entry of ``sys.modules``; an attribute lookup would import the module of a lazy entry."""
    try:
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None
    return file if isinstance(file, str) else None


@functools.cache
def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(str(Path(paths[key]).resolve()) + "/" for key in ("stdlib", "platstdlib"))


@functools.cache
def _own_folder() -> str:
    return str(Path(__file__).resolve().parents[1]) + "/"


def _is_torch(file: str) -> bool:
    folder = _folder_of_package("torch") if "torch" in sys.modules else None
    return (
        bool(folder and file.startswith(folder))
        or re.search(r"[\\/](site|dist)-packages[\\/]torch[\\/]", file) is not None
    )


def _is_installed(file: str) -> bool:
    if any(part in _INSTALLED for part in Path(file).parts):
        return True
    folders = [_folder_of_package(name) for name in _LIBRARIES if name in sys.modules]
    return any(folder and file.startswith(folder) for folder in folders)


@functools.lru_cache(maxsize=4096)
def is_internal(file: str) -> bool:
    """Whether lines of ``file`` are never shown to the user, because it belongs to torch, to opbridge or to Python."""
    if file.startswith("<"):
        return not file.startswith(_INTERACTIVE)
    installed = any(part in _INSTALLED for part in Path(file).parts)
    return (
        _is_torch(file)
        or file.startswith(_own_folder())
        or (not installed and any(file.startswith(folder) for folder in _standard_library()))
    )


def frames_outside_torch(error: BaseException) -> tuple[SourceLine, ...]:
    """The lines of the exception's traceback in the user's code and in libraries except torch, outermost first."""
    return tuple(frame for frame in frames_of_error(error) if not is_internal(frame.file))


def innermost(frames: Iterable[SourceLine], *, libraries: bool = False) -> SourceLine | None:
    """The innermost of ``frames`` (outermost first) in the user's code, otherwise in a library except torch, or None.

    Args:
        frames: The lines of a traceback.
        libraries: Whether to return the innermost frame outside torch, in the user's code or a library.
    """
    candidates = [frame for frame in frames if not is_internal(frame.file)]
    if not libraries:
        candidates = [frame for frame in candidates if not frame.is_installed] or candidates
    return candidates[-1] if candidates else None


@functools.cache
def full_path(file: str) -> str:
    """The absolute path of a source file, without links; names such as ``<stdin>`` as they are."""
    return file if file.startswith("<") else str(Path(file).resolve())


def _frames_of_traceback(traceback: TracebackType | None) -> Iterator[SourceLine]:
    while traceback is not None:
        yield _line_of(traceback.tb_frame, traceback.tb_lineno)
        traceback = traceback.tb_next


def _line_of(frame: FrameType, line: int) -> SourceLine:
    code = frame.f_code
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return SourceLine(full_path(code.co_filename), line, code.co_qualname, text)


def _below_the_export(frames: list[SourceLine]) -> list[SourceLine]:
    """The frames inside the call of torch.export; the frames before belong to the user's script, not to the model."""
    for index, frame in enumerate(frames):
        if _is_torch(frame.file):
            return frames[index:] if "/torch/export/" in Path(frame.file).as_posix() else frames
    return frames


def _down_to_the_cause(error: BaseException, frames: list[SourceLine]) -> list[SourceLine]:
    caught = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if caught is None or not frames or is_internal(frames[-1].file):
        return frames
    inner = _down_to_the_cause(caught, list(_frames_of_traceback(caught.__traceback__)))
    functions = [(frame.file, frame.function) for frame in frames]
    handler = (inner[0].file, inner[0].function) if inner and _is_torch(inner[-1].file) else None
    return [*frames[: functions.index(handler)], *inner] if handler in functions else frames


def frames_of_error(error: BaseException) -> tuple[SourceLine, ...]:
    """The lines of the exception's traceback, outermost first, from the call of torch.export on if there is one.

    If torch's tracer of branches and loops (``torch.cond``) ran the user's code without Python frames, the line that
    the tracer recorded comes last. If code outside torch has caught an error of torch and raised this one instead, the
    lines are those that led to torch's.
    """
    frames = _down_to_the_cause(error, _below_the_export(list(_frames_of_traceback(error.__traceback__))))
    noted = getattr(error, "innermost_user_frame_summary", None)
    if noted is not None and noted.filename:
        frames.append(SourceLine(full_path(noted.filename), noted.lineno or 0, noted.name, (noted.line or "").strip()))
    return tuple(frames)


def frames_of_stack() -> tuple[SourceLine, ...]:
    """The executing lines, outermost first, from the call of torch.export on if there is one."""
    frames: list[SourceLine] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(_line_of(frame, frame.f_lineno))
        frame = frame.f_back
    return tuple(_below_the_export(frames[::-1]))


def variable_at(line: SourceLine, name: str) -> Any:
    """The value of a variable in the executing frame at this line; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _line_of(frame, frame.f_lineno) != line:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get(name, frame.f_globals.get(name))


def source_of_stack() -> SourceLine | None:
    """The user's innermost line that is executing."""
    return innermost(frames_of_stack())


def source_of_error(error: BaseException) -> SourceLine | None:
    """The user's line in which ``error`` or its cause was raised; None if there is none in the traceback."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        source = innermost(frames_of_error(current))
        if source is not None:
            return source
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def source_of_traceback(traceback: TracebackType | None) -> SourceLine | None:
    """The user's innermost line of a traceback."""
    return innermost(_below_the_export(list(_frames_of_traceback(traceback))))


def source_of_stack_trace(text: str | None) -> SourceLine | None:
    """The user's innermost line of a printed traceback, such as an FX node's ``meta["stack_trace"]``."""
    return innermost(_frames_of_text(text))


def _frames_of_text(text: str | None) -> list[SourceLine]:
    frames: list[SourceLine] = []
    for line in (text or "").splitlines():
        match = _STACK_FRAME.match(line)
        if match and match["file"].startswith("torch/"):
            continue  # torch's name for a file of its own, in the node of an input's size
        if match:
            frames.append(SourceLine(full_path(match["file"]), int(match["line"]), match["function"] or ""))
        elif frames and line.strip() and not frames[-1].text:
            frames[-1] = dataclasses.replace(frames[-1], text=line.strip())
    return frames


def frames_of_node(node: Any) -> tuple[SourceLine, ...]:
    """The lines of the model that were executing when an FX node was captured, innermost first."""
    return tuple(_frames_of_text(node.meta.get("stack_trace"))[::-1])


def source_of_node(node: Any) -> SourceLine | None:
    """The user's line that an FX node was captured from."""
    return source_of_stack_trace(node.meta.get("stack_trace"))


def source_of_function(function: Any) -> SourceLine | None:
    """The line on which a Python function or method is defined; None for a function written in C."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return None
    text = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return SourceLine(full_path(code.co_filename), code.co_firstlineno, code.co_qualname, text)


def module_path(source: SourceLine) -> str | None:
    """The import path of the function that contains ``source``: ``"torchvision.ops.boxes.batched_nms"``, or None."""
    if "<" in source.function or not source.function:
        return None
    for name, module in list(sys.modules.items()):
        file = _file_of_module(module)
        if file is not None and name != "__main__" and full_path(file) == source.file:
            return f"{name}.{source.function}"
    return None
