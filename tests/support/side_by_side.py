"""An exported model beside eager PyTorch, compared without opbridge's verifier.

A situation (a model, example inputs, the dynamic dimensions) is exported in a child process, by opbridge, by
``torch.onnx.export``, or only captured by ``torch.export.export``, whose program then runs in place of ONNX Runtime: it
shows which models can be captured as they are. The child loads the ONNX model in ONNX Runtime and compares the outputs
with those of the eager module: at the example's sizes with fresh values; then with each dynamic dimension at a larger
and at a smaller size, alone and all together. Eager PyTorch decides which sizes are legal. 0 and 1 are not tried,
because shapes may mean something else there.

**Equal** is defined in ``side_by_side_equal.py``: the number of outputs, their dtypes, shapes and values, where the
error against eager PyTorch in float64 is held beside the error of eager PyTorch in its own dtype.

=================== ================================================================================================
verdict             meaning
=================== ================================================================================================
right               the outputs are equal at every size, and opbridge says "passed"
refused             there is no model: an error with a message (and with a fix, from opbridge)
verified but wrong  opbridge says "passed", but outputs differ, or ONNX Runtime fails, at a legal size
wrong               outputs differ, or ONNX Runtime fails; opbridge says so itself, torch.onnx.export says nothing
false alarm         opbridge does not say "passed", but the outputs are equal at every size
crash               the process ended, or opbridge raised something other than an OpbridgeError
time limit          it took too long
not comparable      the eager module itself fails on its example: a mistake in the situation
=================== ================================================================================================

The command compares one situation: ``python tests/support/side_by_side.py MODULE:FUNCTION#ARGUMENT EXPORTER``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "EXPORTERS",
    "VERDICTS",
    "Comparison",
    "Exporter",
    "Row",
    "Server",
    "Situation",
    "Verdict",
    "compare",
    "share_of_captured",
    "to_markdown",
]

Exporter = Literal["opbridge", "torch", "capture"]
Verdict = Literal[
    "right", "refused", "verified but wrong", "wrong", "false alarm", "crash", "time limit", "not comparable"
]

EXPORTERS: tuple[Exporter, ...] = ("opbridge", "torch", "capture")
VERDICTS: tuple[Verdict, ...] = (
    "right",
    "refused",
    "verified but wrong",
    "wrong",
    "false alarm",
    "crash",
    "time limit",
    "not comparable",
)
TITLES: Mapping[Exporter, str] = {"opbridge": "opbridge", "torch": "torch.onnx.export", "capture": "torch.export"}

SECONDS = 300.0
MEMORY = 10 << 30


@dataclasses.dataclass
class Situation:
    """A model as a user has it. The factory that returns it is called several times, each time after a fixed seed.

    Attributes:
        model: The module, as the user passes it to the exporter.
        args: Positional example inputs.
        kwargs: Example inputs by keyword.
        dynamic_shapes: As ``torch.export.export`` takes it.
        random: The model draws random numbers: only the number, dtypes and shapes of the outputs are compared. A size
            that is itself random is compared nowhere: it must be unknown in the model.
        tolerance: A stated absolute tolerance, such as one step of a quantized model; 0 for none.
        calls: How many times the model is called in a row, with other values each time; the last call is compared. If
            it is more than 1, state that ``forward`` writes counts: the eager module keeps it, and inputs of the model
            that are no inputs of the module get the extra outputs of the call before, zeros at first.
        exports: How many times the model is exported in the child process; the last export is compared.
        evaluation: Whether the eager module is put in evaluation mode before it is compared.
        options: Further options of the exporter, by its name.
        fresh: Makes inputs ``(args, kwargs)`` from the size of each dynamic dimension and a seed. By default they are
            made from the example: floating-point values are drawn again near those of the example and within their
            range; integers are put in another order; new rows are repetitions.
    """

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    random: bool = False
    tolerance: float = 0.0
    calls: int = 1
    exports: int = 1
    evaluation: bool = False
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    fresh: Callable[[Mapping[str, int], int], tuple[tuple[Any, ...], Mapping[str, Any]]] | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One set of sizes.

    Attributes:
        what: "example", "NAME alone", "NAME with dimensions of the same size" or "all together".
        sizes: The sizes of the dynamic dimensions; empty if eager PyTorch takes no other size.
        equal: Whether the outputs are equal; None if nothing was compared.
        detail: The first difference, the engine's error, or why nothing was compared.
    """

    what: str
    sizes: Mapping[str, int]
    equal: bool | None
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one situation with one exporter.

    Attributes:
        name: The name of the situation.
        exporter: "opbridge", "torch" or "capture".
        verdict: See the table of this module.
        reason: One line: the message of an error, or the first difference.
        fix: The fix that opbridge's message ends with.
        says: What opbridge says about its own result: "passed", "failed", ...; empty for torch.
        findings: The codes of opbridge's findings about the exported model.
        comparisons: What was compared, size by size.
        seconds: The wall time of the child process.
        details: The whole message, and opbridge's own reason for a verdict other than "passed".
    """

    name: str
    exporter: Exporter
    verdict: Verdict
    reason: str = ""
    fix: str = ""
    says: str = ""
    findings: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    seconds: float = 0.0
    details: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        comparisons = tuple(Comparison(**item) for item in data["comparisons"])
        return cls(**{**data, "comparisons": comparisons, "findings": tuple(data["findings"])})


def compare(
    target: str,
    exporter: Exporter,
    *,
    name: str = "",
    seconds: float = SECONDS,
    memory: int | None = MEMORY,
    python: str = sys.executable,
    path: Sequence[str | Path] = (),
) -> Row:
    """Export and compare one situation in a child process.

    Args:
        target: "MODULE:FUNCTION" or "MODULE:FUNCTION#ARGUMENT", which names a function that returns a
            :class:`Situation`; it is imported in the child and called without arguments, or with the text ARGUMENT.
        exporter: "opbridge", "torch" or "capture".
        name: The name of the row; by default the target.
        seconds: The time limit; after it the child and the processes it started are ended.
        memory: The bytes that the child may write to (Linux); None for no limit.
        python: The Python that runs the child, perhaps of another environment.
        path: Folders from which modules are imported, in addition to this process's ``sys.path``.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
        command = [python, str(Path(__file__).with_name("side_by_side_child.py")), target, exporter, folder]
        if memory is not None:
            command.append(str(memory))
        ended = _run(command, {**_environment(python, path), "TMPDIR": folder}, seconds)
        row = _read(Path(folder), name or target, exporter, ended)
    return dataclasses.replace(row, seconds=round(time.monotonic() - started, 1))


class Server:
    """Compares situations one after another like :func:`compare`, in processes that share their imports (POSIX).

    Args:
        python: See :func:`compare`.
        path: See :func:`compare`.
    """

    def __init__(self, *, python: str = sys.executable, path: Sequence[str | Path] = ()) -> None:
        self._command = [python, str(Path(__file__).with_name("side_by_side_server.py"))]
        self._environment = _environment(python, path)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def compare(
        self,
        target: str,
        exporter: Exporter,
        *,
        name: str = "",
        seconds: float = SECONDS,
        memory: int | None = MEMORY,
    ) -> Row:
        """The row of one situation; the arguments are those of :func:`compare`."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="side-by-side-", ignore_cleanup_errors=True) as folder:
            order = {"target": target, "exporter": exporter, "folder": folder, "seconds": seconds, "memory": memory}
            status = self._ask(order)
            output = Path(folder, "output")
            text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
            row = _read(Path(folder), name or target, exporter, _Ended(status, text))
        return dataclasses.replace(row, seconds=round(time.monotonic() - started, 1))

    def _ask(self, order: Mapping[str, Any]) -> int | None:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        status: int | None = json.loads(self._process.stdout.readline())
        return status


def _environment(python: str, path: Sequence[str | Path]) -> dict[str, str]:
    """The environment of a child: it imports from the same folders, except for the packages of another Python."""
    folders = [str(Path(__file__).parent), *map(str, path), *(entry for entry in sys.path if entry)]
    if python != sys.executable:
        folders = [folder for folder in folders if "site-packages" not in folder and "lib/python" not in folder]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


@dataclasses.dataclass(frozen=True)
class _Ended:
    status: int | None
    """The exit code, None after the time limit."""
    output: str


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> _Ended:
    """Run the child in a process group of its own, so that what it started ends with it."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return _Ended(process.returncode, output)
    except subprocess.TimeoutExpired:
        return _Ended(None, "")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _read(folder: Path, name: str, exporter: Exporter, ended: _Ended) -> Row:
    stage_file, row_file = folder / "stage", folder / "row.json"
    stage = stage_file.read_text(encoding="utf-8") if stage_file.exists() else "starting"
    if ended.status is None:
        return Row(name, exporter, "time limit", f"while {stage}")
    if ended.status == 0 and row_file.exists():
        return dataclasses.replace(Row.from_dict(json.loads(row_file.read_text(encoding="utf-8"))), name=name)
    how = signal.Signals(-ended.status).name if ended.status < 0 else f"exit code {ended.status}"
    verdict: Verdict = "not comparable" if stage.startswith("running eager") else "crash"
    return Row(name, exporter, verdict, f"{how} while {stage}", details=ended.output[-3000:])


def to_markdown(rows: Iterable[Row], links: Mapping[str, str] | None = None) -> str:
    """The totals of each exporter, the table of the situations, and the reason of each row that is not right.

    Args:
        rows: The rows of one or both exporters, in the order of the table.
        links: The address that the name of a situation points to.
    """
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row.name, {})[row.exporter] = row
    exporters = [one for one in EXPORTERS if any(one in found for found in by_name.values())]
    counts = {one: Counter(found[one].verdict for found in by_name.values() if one in found) for one in exporters}
    heads = [TITLES[one] for one in exporters]
    lines = [_cells("verdict", *heads), _rule(1 + len(heads))]
    for verdict in VERDICTS:
        if any(counts[one][verdict] for one in exporters):
            lines.append(_cells(verdict, *(str(counts[one][verdict]) for one in exporters)))
    lines += [_cells("all", *(str(counts[one].total()) for one in exporters)), ""]
    share = share_of_captured(row for found in by_name.values() for row in found.values())
    lines += [share, ""] if share else []
    lines += [_cells("situation", *heads, "sizes tried"), _rule(2 + len(heads))]
    for name, found in by_name.items():
        title = f"[{name}]({links[name]})" if links and name in links else name
        verdicts = [found[one].verdict if one in found else "" for one in exporters]
        lines.append(_cells(title, *verdicts, _tried(next(iter(found.values())))))
    for one in exporters:
        if one == "capture":
            continue
        head = TITLES[one]
        missed = [found[one] for found in by_name.values() if one in found and found[one].verdict != "right"]
        if missed:
            fixes = ["fix"] if one == "opbridge" else []
            lines += ["", f"Not right with {head}:", "", _cells("situation", "verdict", "reason", *fixes)]
            lines.append(_rule(3 + len(fixes)))
            lines += [_cells(row.name, row.verdict, row.reason, *([row.fix] if fixes else [])) for row in missed]
    return "\n".join(lines) + "\n"


def share_of_captured(rows: Iterable[Row]) -> str:
    """How many of the models that torch.export captures rightly are right with opbridge; empty if none was captured."""
    verdicts = {(row.name, row.exporter): row.verdict for row in rows}
    names = {name for name, exporter in verdicts if exporter == "opbridge"}
    captured = [name for name in names if verdicts.get((name, "capture")) == "right"]
    if not captured:
        return ""
    right = sum(verdicts[name, "opbridge"] == "right" for name in captured)
    return (
        f"`torch.export.export` alone captures {len(captured)} of these models with every declared size dynamic: the "
        f"program gives eager PyTorch's results at all sizes that are tried. opbridge is right for {right} of them "
        f"({100 * right / len(captured):.1f}%)."
    )


def _tried(row: Row) -> str:
    """The sizes of a row in short: "n: 4, 6; m: no other size is legal"."""
    texts = []
    for item in row.comparisons:
        if item.what != "example":
            sizes = ", ".join(f"{name}={size}" for name, size in item.sizes.items())
            texts.append(sizes or f"{item.what}: {item.detail}")
    return "; ".join(dict.fromkeys(texts))


def _cells(*texts: str) -> str:
    escaped = (" ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") for text in texts)
    return "| " + " | ".join(escaped) + " |"


def _rule(count: int) -> str:
    return "|" + "---|" * count


if __name__ == "__main__":
    print(json.dumps(compare(sys.argv[1], sys.argv[2]).to_dict(), indent=2))  # type: ignore[arg-type]
