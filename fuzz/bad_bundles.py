"""What may be wrong with a bundle: each of its files, and the data in them with hashes that are right."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from pathlib import Path
from typing import Any

from bad_content import ANYTHING, BINARY, FILE, Change, content, gone, inside
from bad_models import MODELS

from opbridge.bundle.checks import manifest_hash

__all__ = ["BUNDLES"]


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


def _hashed(change: Change) -> Change:
    """Another model, with the hashes that a stranger would write."""

    def changed(path: Path, chance: random.Random) -> None:
        change(path / "model.onnx", chance)
        file = path / "bundle.json"
        data = json.loads(file.read_text())
        content = (path / "model.onnx").read_bytes()
        data["files"]["model.onnx"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        data["sha256"] = manifest_hash(data)
        file.write_text(json.dumps(data))

    return changed


BUNDLES: dict[str, Change] = {
    **ANYTHING,
    "a file": content(b"bundle"),
    "an empty folder": lambda path, chance: gone(path).mkdir(),
    **{f"manifest {n}": _manifest for n in range(16)},
    **{f"verification {n}": _side("verification.json") for n in range(10)},
    **{f"sources {n}": _side("sources.json") for n in range(6)},
    "marks": _side("marks.json"),
    **{f"text {name}": _begun(text) for name, text in _BEGINNINGS.items()},
    "no marks": inside("marks.json", ANYTHING["missing"]),
    "a file more": lambda path, chance: (path / "numpy.py").write_text("raise SystemExit(9)"),
    "a link in it": lambda path, chance: (path / "kernels").symlink_to("/etc"),
    **{f"manifest: {name}": inside("bundle.json", change) for name, change in BINARY.items()},
    **{f"verification: {name}": inside("verification.json", change) for name, change in FILE.items()},
    **{f"sources: {name}": inside("sources.json", change) for name, change in FILE.items()},
    **{f"marks: {name}": inside("marks.json", change) for name, change in FILE.items()},
    **{f"model: {name}": inside("model.onnx", change) for name, change in BINARY.items()},
    # An engine may take all time for a model that is as large as calls of calls.
    **{f"hashed model: {name}": _hashed(MODELS[name]) for name in sorted({*MODELS} - {*BINARY, "calls of calls"})},
    **{f"reference: {name}": inside("reference.onnx", change) for name, change in BINARY.items()},
}
