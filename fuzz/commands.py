"""Command lines with one thing wrong: a file, a value, an output, or the surroundings; and with two, at random."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bad_content import Change
from bad_files import BAD, names_the_file
from forked import Case, make_socket
from surroundings import FRESH, SURROUNDINGS
from valid_files import VALID

__all__ = ["all_cases", "every_case"]

COMMANDS = [
    "attach {onnx} -o {file} --ops {ops}",
    "bench {bundle} --input {npz} --engine {engine} --seconds {number} --threads {number}",
    "bench b --input x.npz --seconds 0.1 --reference {onnx} --ops {ops} --signed-by {public}",
    "build-kernels {ops} -o {folder} --engine {engine}",
    "compare {onnx} m.onnx --inputs {npz} --engine {engine} --seed {number}",
    "compare {bundle} {entry}:model --engine {engine} --rtol {number} --atol {number}",
    "compare m.onnx {onnx} --ops {ops}",
    "compare m.onnx {bundle} --signed-by {public}",
    "completion {name}",
    "conformance --op {name} --dtype {name} --samples {number} --jobs {number} --limit {number} -o {file}",
    "conformance report {results} -o {folder}",
    "convert-dtype {onnx} {name} -o {file} --inputs {npz} --tolerance {number} --engine {engine}",
    "convert-opset {onnx} --opset {number} --ir-version {number} -o {file}",
    "delete {onnx} --nodes {name} -o {file}",
    "delete {onnx} --outputs {name} --inputs {name} -o {file}",
    "diagnose {onnx} --engine {engine} --opset {number}",
    "diagnose {entry}:model --engine {engine} --ops {ops}",
    "diagnose {pt2}",
    "diff {onnx} m.onnx",
    "diff m.onnx {onnx}",
    "doctor",
    "engines",
    "export {onnx} -o {folder} --engine {engine} --no-verify --opset {number} --ir-version {number}",
    "export {onnx} -o {folder} --engine {engine} --inputs {npz} --time-limit {number} --memory-limit {number}",
    "export {onnx} -o {folder} --seed {number} --shrink {number} --nan {name} --assume {name}",
    "export {entry}:model -o {folder} --engine {engine} --no-verify --ops {ops} --with-reference",
    "export {pt2} -o {folder} --engine {engine} --no-verify",
    "extract {onnx} --inputs {name} --outputs {name} -o {file}",
    "fuse {onnx} fuzz::twice --ops {ops} -o {file} --at {name}",
    "inline {onnx} -o {file} --functions {name}",
    "inline {onnx} -o {file} --log-file {log}",
    "engines --log-file {log}",
    "insert {onnx} {name} --on {name} -o {file} --attribute alpha={number}",
    "insert m.onnx LeakyRelu --on a -o out --inputs {name} --only {name} --name {name}",
    "join {onnx} m.onnx -o {file} --map {name}=x",
    "join m.onnx {onnx} -o {file}",
    "migrate {script}",
    "new-app {bundle} -o {folder} --engine {engine}",
    "new-app b -o {folder} --signed-by {public}",
    "new-op {name} -o {folder} --kernel",
    "ops {name} --ops {ops}",
    "reduce {bundle} -o {folder} --inputs {npz} --time-limit {number}",
    "reduce {onnx} -o {folder} --engine {engine} --seed {number}",
    "reduce b -o {folder} --reference {entry}:model --ops {ops} --signed-by {public}",
    "rename {onnx} --value a={name} -o {file}",
    "rename m.onnx --node leaky={name} --dimension n={name} --operator fuzz::Twice={name} -o out",
    "report {bundle} --format {name} -o {file}",
    "run {bundle} --input {npz} -o {file} --engine {engine} --time-limit {number} --memory-limit {number}",
    "run {bundle} --input x={npy} -o {file} --engine {engine} --trust",
    "run {bundle} --input {npz} -o {file} --signed-by {public}",
    "run-script --report {file} {script} script.onnx",
    "set-attribute {onnx} {name} alpha={number} -o {file}",
    "set-attribute m.onnx leaky --drop {name} -o out",
    "set-dimension {onnx} x:0={number} -o {file} --engine {engine}",
    "sign {bundle} --key {key}",
    "sweep diff {swept} swept --junit {file}",
    "sweep diff swept {swept}",
    "sweep report {swept} -o {file}",
    "sweep {entry} --engine {engine} --jobs {number} --timeout {number} --memory {number} -o {folder}",
    "test-op {ops} --engine {engine}",
    "verify {bundle} --inputs {npz} --engine {engine} --seed {number} --rtol {number}",
    "verify b --signed-by {public} --shrink {number} --atol {number} --special-values {name}",
    "verify b --reference {onnx} --ops {ops}",
    "verify {bundle} --reference {onnx} --ops {ops} --edge-sizes --time-limit {number} --memory-limit {number}",
    "view {bundle} --no-browser --port {number}",
    "view {onnx} --no-browser",
]
"""Every command with its options. A word in braces is the kind of a value."""

_NAMES = [
    "",
    " ",
    "a" * 3000,
    "é\u202e",
    "a\nb",
    "\x1b[31m",
    "::",
    "fuzz::",
    "::a::b",
    "-1",
    "[1",
    "nan",
    "../x",
    "%s{}",
]
_NUMBERS = [
    "",
    "x",
    "-1",
    "0",
    "1",
    "18",
    "99999999999999999999",
    "1e999",
    "nan",
    "-inf",
    "0x10",
    "0.5",
    "4GiB",
    "-4GiB",
]
_ENGINES = [
    *("", ",", "none", "none,none", "no_such_engine", "reference,reference", "reference==", "==1", "onnxruntime==x"),
    *("../reference", "tvm", "executorch", "ncnn", "a b", "reference,none", "tensorrt_rtx", "é"),
]
_OUTPUTS = [
    *("", "x.npz", "b", "b/model.onnx", "m.onnx", "nowhere/out", "m.onnx/out", "/dev/full", "/proc/x", "/dev/null"),
    *("o" * 300, ".", "/", "pipe", "loop", "swept", "read-only/out", "read-only", "socket", "zero", "entry.py/x"),
]
_WRITTEN = (
    "out",
    "out.data",
    "rows.jsonl",
    "__pycache__",
    "log",
    "out.npz",
    "new",
    "nowhere",
    "b",
    "script.onnx",
    "my_op.h",
    "my_op.py",
)
_REPLACING = ("report", "run", "new-op", "conformance", "sweep report", "sweep diff")
_PLAIN = {"number": "7", "name": "a", "engine": "reference", "file": "out", "folder": "new", "log": "log"}
_VALUES = {"number": _NUMBERS, "name": _NAMES, "engine": _ENGINES}
_SAMPLES = {"--opset": "18", "--ir-version": "10", "--seed": "7", "--memory-limit": "4GiB", "--samples": "1",
            "--jobs": "1", "--limit": "30", "--time-limit": "30", "--rtol": "0.1", "--port": "0",
            "--seconds": "0.1", "--threads": "1", "--timeout": "30", "--memory": "4GiB", "--shrink": "1"}  # fmt: skip
_NAMED = {
    "completion": "bash",
    "conformance --op": "hypot",
    "conformance --dtype": "float32",
    "convert-dtype": "float16",
    "delete --inputs": "x",
    "delete --nodes": "leaky",
    "delete --outputs": "y",
    "extract --inputs": "x",
    "extract --outputs": "y",
    "export --assume": "check",
    "export --nan": "absent",
    "fuse --at": "y",
    "inline --functions": "fuzz::Twice",
    "insert": "LeakyRelu",
    "insert --name": "new",
    "insert --only": "b",
    "join --map": "y",
    "new-op": "mylib::my_op",
    "ops": "aten::cummax",
    "rename --value": "c",
    "rename --dimension": "m",
    "rename --node": "c",
    "rename --operator": "fuzz::Other",
    "report --format": "html",
    "set-attribute": "leaky",
    "set-attribute --drop": "alpha",
    "verify --special-values": "report",
}
"""The valid name of an option, or of the first argument, of a command."""

_SLOW_COMMANDS = ("conformance --op", "test-op", "run-script", "doctor", "engines", "reduce", "sweep {entry}")
"""Command lines that take seconds even for these files, so that fewer of them are made."""


def _word(words: list[str], at: int) -> str:
    """The valid value of one word."""
    option = words[at - 1] if at else ""
    name = words[0]

    def value(found: re.Match[str]) -> str:
        kind = found[1]
        if kind == "number" and option in _SAMPLES:
            return _SAMPLES[option]
        if kind == "name":
            return _NAMED.get(f"{name} {option}", _NAMED.get(name, "a") if not option.startswith("--") else "a")
        return VALID.get(kind) or _PLAIN[kind]

    return re.sub(r"\{(\w+)\}", value, words[at])


def _valid(command: str) -> list[str]:
    words = command.split()
    return [_word(words, at) for at in range(len(words))]


def _case(command: str, argv: list[str], **options: Any) -> Case:
    interrupt = (int(signal.SIGINT), 5.0) if command.startswith("view") else None
    return Case(argv=tuple(argv), **{"interrupt": interrupt, "outputs": _WRITTEN, **options})


def _with_bad_files(command: str, chance: random.Random) -> Iterator[Case]:
    words = command.split()
    for at, word in enumerate(words):
        kind = next(iter(re.findall(r"\{(\w+)\}", word)), "")
        for bad in BAD.get(kind, ()):
            change, seed = BAD[kind][bad], chance.randrange(1 << 30)
            culprit = VALID[kind] if names_the_file(kind, bad) else ""

            def prepare(folder: Path, change: Change = change, name: str = VALID[kind], seed: int = seed) -> None:
                change(folder / name, random.Random(seed))

            yield _case(command, _valid(command), area="files", prepare=prepare, culprit=culprit, name=f"{kind}: {bad}")
        for value in _VALUES.get(kind, ()):
            argv = _valid(command)
            argv[at] = word.replace(f"{{{kind}}}", value)
            yield _case(command, argv, area="values")
        if kind in ("file", "folder", "log"):
            for output in _OUTPUTS:
                argv = _valid(command)
                argv[at] = output
                # These commands have no --overwrite: they write where the user says. A log is appended.
                is_replaced = kind == "log" or command.startswith(_REPLACING)
                written = (*_WRITTEN, output.split("/")[0]) if is_replaced else _WRITTEN
                yield _case(command, argv, area="outputs", prepare=_odd_outputs, outputs=written)


def _odd_outputs(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    make_socket(folder / "socket")
    (folder / "read-only").mkdir(0o500)


def every_case(chance: random.Random) -> list[Case]:
    """Every command line with one thing wrong, in random order."""
    cases: list[Case] = []
    for command in COMMANDS:
        made = list(_with_bad_files(command, chance))
        is_slow = command.startswith(_SLOW_COMMANDS)
        cases += chance.sample(made, min(len(made), 30)) if is_slow else made
        for name in SURROUNDINGS:
            if not is_slow or chance.random() < 0.2:
                cases.append(_case(command, _valid(command), area="surroundings", surroundings=name))
        for _ in range(2 if is_slow else 5):
            sent = chance.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
            fresh = chance.choice(["ordinary", f"{FRESH}ASCII"])
            after = chance.uniform(0.1, 1.0) if fresh != "ordinary" else chance.uniform(0, 0.4)
            argv = _valid(command)
            cases.append(_case(command, argv, area="signals", surroundings=fresh, interrupt=(int(sent), after)))
    chance.shuffle(cases)
    return cases


def all_cases(chance: random.Random) -> Iterator[Case]:
    """Cases of all areas, without end: with one fault until every one was made, and every fifth one with two.

    They begin with a quick one of each area, so that a short run has tried all areas.
    """
    more = _with_two_faults(chance)
    cases = every_case(chance)
    first = {case.area: case for case in cases if case.argv[0] == "delete"}
    yield from first.values()
    for number, case in enumerate(cases):
        if number % 4 == 0:
            yield next(more)
        if case not in first.values():
            yield case
    yield from more


def _kind(case: Case) -> str:
    """The kind of the file that is wrong; "" if none is."""
    return case.name.partition(":")[0]


def _with_two_faults(chance: random.Random) -> Iterator[Case]:
    """Command lines with two things wrong, without end."""
    while True:
        command = chance.choice(COMMANDS)
        one, two = (chance.choice(list(_with_bad_files(command, chance)) or [None]) for _ in range(2))
        if one is None or two is None or _kind(one) == _kind(two) != "":
            continue  # Two changes of one file: the second would undo the first, or wait for the reader of a pipe.

        def prepare(folder: Path, first: Case = one, second: Case = two) -> None:
            first.prepare(folder)
            with contextlib.suppress(OSError):  # The first change took away what the second one changes.
                second.prepare(folder)

        where = chance.choice(["ordinary", "ordinary", *SURROUNDINGS])
        argv = [a if a != v else b for a, b, v in zip(one.argv, two.argv, _valid(command), strict=True)]
        outputs = tuple({*one.outputs, *two.outputs})
        name = f"{one.name or one.argv}; {two.name or two.argv}; {where}"
        yield _case(command, argv, area="two faults", prepare=prepare, surroundings=where, outputs=outputs, name=name)
