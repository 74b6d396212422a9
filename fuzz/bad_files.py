"""Files that are not what a command line expects, by kind; and the valid files that they stand for."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from forked import make_socket
from onnx import TensorProto, helper, numpy_helper

from opbridge.bundle.checks import manifest_hash

__all__ = ["BAD", "VALID", "Change", "make_valid", "names_the_file"]

VALID = {
    "bundle": "b",
    "onnx": "m.onnx",
    "npz": "x.npz",
    "npy": "x.npy",
    "entry": "entry.py",
    "ops": "ops.py",
    "script": "script.py",
    "pt2": "program.pt2",
    "key": "private.pem",
    "public": "public.pem",
    "results": "results.jsonl",
    "swept": "swept",
}
"""The name of the valid file of each kind."""

_ENTRY = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.cummax(x, 1).values


def model():
    return Net(), (torch.ones(2, 4),)


entries = {"net": model}
"""
_OPS = """
import torch
import opbridge


@opbridge.operator("fuzz::twice", samples=lambda: [opbridge.Sample((torch.ones(3),))])
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x
"""
_SCRIPT = """
import sys
import torch

torch.onnx.export(torch.nn.ReLU(), (torch.ones(2),), sys.argv[1] if len(sys.argv) > 1 else "script.onnx", dynamo=False)
"""
_RESULT = {"entry": "hypot", "dtype": "float32", "status": "passed", "samples": 1, "reason": "", "seconds": 1.0}
_ROW = {"zoo": "entry.py", "model": "net", "exporter": "opbridge", "engine": "reference", "status": "pass"}
_PROGRAM = "import torch; torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), 'program.pt2')"


def make_valid(folder: Path) -> None:
    """Write the valid files. Child processes do what starts threads, because this process is forked later."""
    folder.mkdir()
    (folder / "entry.py").write_text(_ENTRY)
    (folder / "ops.py").write_text(_OPS)
    (folder / "script.py").write_text(_SCRIPT)
    (folder / "results.jsonl").write_text(json.dumps(_RESULT) + "\n")
    (folder / "swept").mkdir()
    (folder / "swept" / "rows.jsonl").write_text(json.dumps(_ROW) + "\n")
    (folder / "m.onnx").write_bytes(model().SerializeToString())
    x = np.ones((2, 4), np.float32)
    np.savez(folder / "x.npz", x=x)
    np.save(folder / "x.npy", x)
    _keys(folder)
    export = [sys.executable, "-m", "opbridge", "export", "m.onnx", "-o", "b", "--engine", "reference", "-q"]
    sign = [sys.executable, "-m", "opbridge", "sign", "b", "--key", "private.pem"]
    for command in ([sys.executable, "-c", _PROGRAM], [*export, "--with-reference"], sign):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def model(*, dims: tuple[int, ...] = (4,), content: bytes | None = None, **options: Any) -> onnx.ModelProto:
    """The valid model, or one whose weight has other dimensions or another content."""
    weight = numpy_helper.from_array(np.linspace(0, 1, 4, dtype=np.float32), "w")
    weight.dims[:] = dims
    if content is not None:
        weight.raw_data = content
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], name="leaky", alpha=0.5),
        helper.make_node("Add", ["a", "w"], ["b"], name="add"),
        helper.make_node("Twice", ["b"], ["y"], name="twice", domain="fuzz"),
    ]
    opsets = [helper.make_opsetid("", options.pop("opset", 18)), helper.make_opsetid("fuzz", 1)]
    body = [helper.make_node("Add", ["p", "p"], ["q"])]
    function = helper.make_function("fuzz", "Twice", ["p"], ["q"], body, opsets[:1])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, options.pop("shape", ["n", 4]))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "g", [value], [result], [weight])
    return helper.make_model(graph, opset_imports=opsets, functions=[function], **{"ir_version": 8, **options})


def _keys(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "private.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "public.pem").write_bytes(key.public_key().public_bytes(pem, form))


# What is wrong with a file: a function of its path and of a source of random numbers.

Change = Callable[[Path, random.Random], object]


def _gone(path: Path) -> Path:
    """The path, where now nothing is."""
    if path.is_dir():
        path.rename(path.with_name("elsewhere"))
    elif path.exists():
        path.unlink()
    return path


def _content(content: bytes | str) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda path, chance: _gone(path).write_bytes(data)


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(bytes(content))


def _hole(path: Path, chance: random.Random) -> None:
    """A sparse file, which takes no room on the disk, but all in memory."""
    _gone(path).touch()
    os.truncate(path, 1 << 40)


_ANYTHING: dict[str, Change] = {
    "missing": lambda path, chance: _gone(path),
    "a pipe": lambda path, chance: os.mkfifo(_gone(path)),
    "a socket": lambda path, chance: make_socket(_gone(path)),
    "a device": lambda path, chance: _gone(path).symlink_to("/dev/zero"),
    "a link to itself": lambda path, chance: _gone(path).symlink_to(path.name),
    "a link to nothing": lambda path, chance: _gone(path).symlink_to("nowhere"),
}
_FILE: dict[str, Change] = {
    **_ANYTHING,
    "a folder": lambda path, chance: _gone(path).mkdir(),
    "empty": _content(b""),
    "junk": lambda path, chance: _gone(path).write_bytes(chance.randbytes(3000)),
    "zeros": _content(bytes(3000)),
    "deep": _content("[" * 100_000),
    "a hole of a terabyte": _hole,
}
_BINARY: dict[str, Change] = {**_FILE, "cut": _cut, **{f"flipped {n}": _flipped for n in range(6)}}


def _python(text: str) -> Change:
    return _content(f"import torch\n{text}")


_ENTRIES = {
    "no function": "x = 1",
    "raises": "def model():\n    raise ValueError('planted')",
    "raises on import": "raise RuntimeError('planted')",
    "exits": "import sys\nsys.exit(3)",
    "recursion": "def model():\n    return model()",
    "returns None": "def model():\n    pass",
    "returns a number": "def model():\n    return 7",
    "returns a class": "def model():\n    return torch.nn.ReLU, (torch.ones(2),)",
    "wrong arguments": "def model():\n    return torch.nn.ReLU(), (torch.ones(2),) * 3",
    "arguments of no tensors": "def model():\n    return torch.nn.ReLU(), ('a',)",
    "unknown keys": "def model():\n    return {'modell': 1}",
    "wrong dynamic shapes": "def model():\n    return dict(model=torch.nn.ReLU(), args=(torch.ones(2),),"
    " dynamic_shapes={'z': {7: 'n'}})",
    "wrong names": "def model():\n    return dict(model=torch.nn.ReLU(), args=(torch.ones(2),), input_names=[1, 2])",
    "changes the state": "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)",
    "syntax": "def model(:",
    "a NUL": "\0",
}


def _json_values() -> list[Any]:
    return [
        None,
        True,
        -1,
        2**70,
        1e308,
        "",
        "../evil.so",
        "a\0b",
        "\ud800",
        "\u202e",
        [],
        [[]],
        {},
        {"a": [1]},
        "x" * 5000,
        0.5,
    ]


def changed_json(data: Any, chance: random.Random) -> Any:
    """JSON data in which one or two values have another type, are missing or nested deeply."""
    data = json.loads(json.dumps(data))
    for _ in range(chance.randint(1, 2)):
        holder, key, place = None, None, data
        while isinstance(place, dict | list) and place and (holder is None or chance.random() < 0.7):
            holder, key = place, chance.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
            place = holder[key]
        if holder is None:
            return chance.choice(_json_values())
        what = chance.random()
        if what < 0.15:
            del holder[key]
        elif what < 0.25:
            for _ in range(chance.choice([5, 400, 800])):
                holder[key] = [holder[key]]
        else:
            holder[key] = chance.choice(_json_values())
    return data


def _manifest(path: Path, chance: random.Random) -> None:
    """An ill-typed manifest with the right hash."""
    file = path / "bundle.json"
    data = changed_json(json.loads(file.read_text()), chance)
    with contextlib.suppress(RecursionError):  # It is nested so deeply that it has no hash.
        if isinstance(data, dict):
            data["sha256"] = manifest_hash(data)
    file.write_text(json.dumps(data))


_BEGINNINGS = {
    "a key twice": '{"files": {}, ',
    "NaN": '{"opset_reason": NaN, ',
    "infinity": '{"opset_reason": -Infinity, ',
    "depth": f'{{"x": {"[" * 940}{"]" * 940}, ',
    "digits": f'{{"x": {"9" * 5000}, ',
}
"""Beginnings of a manifest that is JSON for a lenient reader."""


def _begun(text: str) -> Change:
    def change(path: Path, chance: random.Random) -> None:
        file = path / "bundle.json"
        file.write_text(file.read_text().replace("{", text, 1))

    return change


def _side(name: str) -> Change:
    def change(path: Path, chance: random.Random) -> None:
        file = path / name
        file.write_text(json.dumps(changed_json(json.loads(file.read_text()), chance)))

    return change


def _inside(name: str, change: Change) -> Change:
    return lambda path, chance: change(path / name, chance)


_BUNDLES: dict[str, Change] = {
    **_ANYTHING,
    "a file": _content(b"bundle"),
    "an empty folder": lambda path, chance: _gone(path).mkdir(),
    **{f"manifest {n}": _manifest for n in range(16)},
    **{f"verification {n}": _side("verification.json") for n in range(10)},
    **{f"sources {n}": _side("sources.json") for n in range(6)},
    "marks": _side("marks.json"),
    **{f"text {name}": _begun(text) for name, text in _BEGINNINGS.items()},
    "no marks": _inside("marks.json", _ANYTHING["missing"]),
    "a file more": lambda path, chance: (path / "numpy.py").write_text("raise SystemExit(9)"),
    "a link in it": lambda path, chance: (path / "kernels").symlink_to("/etc"),
    **{f"manifest: {name}": _inside("bundle.json", change) for name, change in _BINARY.items()},
    **{f"verification: {name}": _inside("verification.json", change) for name, change in _FILE.items()},
    **{f"sources: {name}": _inside("sources.json", change) for name, change in _FILE.items()},
    **{f"marks: {name}": _inside("marks.json", change) for name, change in _FILE.items()},
    **{f"model: {name}": _inside("model.onnx", change) for name, change in _BINARY.items()},
    **{f"reference: {name}": _inside("reference.onnx", change) for name, change in _BINARY.items()},
}


def _external(**places: str) -> Change:
    def change(path: Path, chance: random.Random) -> None:
        changed = model()
        weight = changed.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in places.items():
            weight.external_data.add(key=key, value=value)
        os.mkfifo(path.with_name("pipe"))
        path.write_bytes(changed.SerializeToString())

    return change


def _model(**options: Any) -> Change:
    return lambda path, chance: path.write_bytes(model(**options).SerializeToString())


def _cycle(path: Path, chance: random.Random) -> None:
    changed = model()
    changed.graph.node[0].input[0] = "y"
    path.write_bytes(changed.SerializeToString())


def _deep_graph(path: Path, chance: random.Random) -> None:
    changed = model()
    condition = numpy_helper.from_array(np.array(True), "c")
    result = helper.make_empty_tensor_value_info("z")
    graph = other = helper.make_graph([helper.make_node("Identity", ["a"], ["z"])], "s", [], [result])
    for _ in range(24):
        node = helper.make_node("If", ["c"], ["z"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([node], "s", [], [result])
    changed.graph.initializer.append(condition)
    changed.graph.node.append(helper.make_node("If", ["c"], ["t"], then_branch=graph, else_branch=other))
    path.write_bytes(changed.SerializeToString())


def _own_function(path: Path, chance: random.Random) -> None:
    changed = model()
    changed.functions[0].node[0].domain = "fuzz"
    changed.functions[0].node[0].op_type = "Twice"
    del changed.functions[0].node[0].input[1:]
    path.write_bytes(changed.SerializeToString())


def _many_calls(path: Path, chance: random.Random) -> None:
    """Functions that each call the one before twice: a small file of a huge model."""
    changed = model()
    for number in range(40):
        inner = f"Twice{number - 1}" if number else "Twice"
        nodes = [helper.make_node(inner, [a], [b], domain="fuzz") for a, b in (("p", "m"), ("m", "q"))]
        opsets = [helper.make_opsetid("fuzz", 1)]
        changed.functions.append(helper.make_function("fuzz", f"Twice{number}", ["p"], ["q"], nodes, opsets))
    changed.graph.node[2].op_type = "Twice39"
    path.write_bytes(changed.SerializeToString())


def _odd_names(path: Path, chance: random.Random) -> None:
    """Names that control a terminal, hide text, and begin a line like a fix of opbridge."""
    changed = model()
    changed.graph.node[1].op_type = changed.graph.node[1].name = "\x1b]0;x\x07\u202e\u200b\nfix: run this\r"
    path.write_bytes(changed.SerializeToString())


_MODELS: dict[str, Change] = {
    **_BINARY,
    "5 bytes": _model(content=b"12345"),
    "no bytes": _model(content=b""),
    "a negative dimension": _model(dims=(-4,)),
    "huge dimensions": _model(dims=(2**40, 2**40)),
    "other dimensions": _model(dims=(5,)),
    "a negative size": _model(shape=[-1, 4]),
    "opset 0": _model(opset=0),
    "opset 999": _model(opset=999),
    "IR version 999": _model(ir_version=999),
    "IR version -1": _model(ir_version=-1),
    "a cycle": _cycle,
    "graphs in graphs": _deep_graph,
    "a function that calls itself": _own_function,
    "calls of calls": _many_calls,
    "odd names": _odd_names,
    "weights elsewhere": _external(location="../../../etc/hosts"),
    "weights at the root": _external(location="/etc/hosts"),
    "weights in a pipe": _external(location="pipe"),
    "weights missing": _external(location="gone"),
    "weights before the file": _external(location="x.npy", offset="-5"),
    "weights beyond the file": _external(location="x.npy", offset="99999999999999999999"),
    "weights of no size": _external(location="x.npy", length="five"),
    "weights without a place": _external(),
}


def _header(header: str) -> bytes:
    text = header.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"12345"


_HEADERS = {
    "5 bytes": "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }",
    "a negative dimension": "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 4), }",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "no shape": "{'descr': '<f4', 'fortran_order': False}",
    "no dtype": "{'descr': 7, 'fortran_order': False, 'shape': (1,), }",
    "deep header": "(" * 110,
}


def _npz(content: bytes) -> Change:
    def change(path: Path, chance: random.Random) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)

    return change


def _arrays(**arrays: Any) -> Change:
    return lambda path, chance: np.savez(path, **arrays)


def _bomb(path: Path, chance: random.Random) -> None:
    """An archive that says that it is larger than any memory."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", _header(_HEADERS["5 bytes"]))
        archive.infolist()[0].file_size = 1 << 60


_LINES: dict[str, Change] = {
    **_FILE,
    **{name: _content(text) for name, text in {"not JSON": "{", "a list": "[1]\n", "types": '{"entry": 7}\n'}.items()},
}

BAD: dict[str, dict[str, Change]] = {
    "bundle": _BUNDLES,
    "onnx": _MODELS,
    "npz": {
        **_BINARY,
        **{name: _npz(_header(header)) for name, header in _HEADERS.items()},
        "text": _arrays(x=np.array(["a", "b"])),
        "another shape": _arrays(x=np.ones((2, 5), np.float32)),
        "another dtype": _arrays(x=np.ones((2, 4), np.complex64)),
        "another name": _arrays(z=np.ones((2, 4), np.float32)),
        "no arrays": _arrays(),
        "a bomb": _bomb,
    },
    "npy": {**_BINARY, **{name: _content(_header(header)) for name, header in _HEADERS.items()}},
    "entry": {
        **_FILE,
        **{name: _python(text) for name, text in _ENTRIES.items()},
        "not UTF-8": _content(b"x = '\xff'"),
    },
    "ops": {**_FILE, **{name: _python(_ENTRIES[name]) for name in ("raises on import", "exits", "syntax", "a NUL")}},
    "script": {**_FILE, **{name: _python(_ENTRIES[name]) for name in ("raises on import", "exits", "syntax", "a NUL")}},
    "pt2": _BINARY,
    "key": _BINARY,
    "public": _BINARY,
    "results": _LINES,
    "swept": {**_ANYTHING, **{f"rows: {name}": _inside("rows.jsonl", change) for name, change in _LINES.items()}},
}
"""By kind, what may be wrong with a file of that kind."""


def names_the_file(kind: str, bad: str) -> bool:
    """Whether an error must name the file: not if the file can be valid, or if its content is Python or arrays."""
    if "flipped" in bad or bad in ("graphs in graphs", "a negative size"):
        return False
    return kind in ("bundle", "onnx") or bad in _FILE
