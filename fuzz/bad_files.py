"""Files that are not what a command line expects, by kind."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from bad_bundles import BUNDLES
from bad_content import ANYTHING, BINARY, FILE, Change, content, inside
from bad_models import CAN_BE_VALID, MODELS

__all__ = ["BAD", "names_the_file"]


def _python(text: str) -> Change:
    return content(f"import torch\n{text}")


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
    **FILE,
    **{name: content(text) for name, text in {"not JSON": "{", "a list": "[1]\n", "types": '{"entry": 7}\n'}.items()},
}

BAD: dict[str, dict[str, Change]] = {
    "bundle": BUNDLES,
    "onnx": MODELS,
    "npz": {
        **BINARY,
        **{name: _npz(_header(header)) for name, header in _HEADERS.items()},
        "text": _arrays(x=np.array(["a", "b"])),
        "another shape": _arrays(x=np.ones((2, 5), np.float32)),
        "another dtype": _arrays(x=np.ones((2, 4), np.complex64)),
        "another name": _arrays(z=np.ones((2, 4), np.float32)),
        "no arrays": _arrays(),
        "a bomb": _bomb,
    },
    "npy": {**BINARY, **{name: content(_header(header)) for name, header in _HEADERS.items()}},
    "entry": {
        **FILE,
        **{name: _python(text) for name, text in _ENTRIES.items()},
        "not UTF-8": content(b"x = '\xff'"),
    },
    "ops": {**FILE, **{name: _python(_ENTRIES[name]) for name in ("raises on import", "exits", "syntax", "a NUL")}},
    "script": {**FILE, **{name: _python(_ENTRIES[name]) for name in ("raises on import", "exits", "syntax", "a NUL")}},
    "pt2": BINARY,
    "key": BINARY,
    "public": BINARY,
    "results": _LINES,
    "swept": {**ANYTHING, **{f"rows: {name}": inside("rows.jsonl", change) for name, change in _LINES.items()}},
}
"""By kind, what may be wrong with a file of that kind."""


def names_the_file(kind: str, bad: str) -> bool:
    """Whether an error must name the file: not if the file can be valid, or if its content is Python or arrays."""
    if bad.startswith("hashed model: ") or "flipped" in bad or bad in CAN_BE_VALID:
        return False
    return kind in ("bundle", "onnx") or bad in FILE
