"""The program that runs a script and stores the models that it exports: ``python -m opbridge.legacy.migrate.child``.

Its argument is a request in JSON: the script, the migrated source (None to run the script itself with the bridge on),
the arguments of the script, and the folder for the models and for ``result.json``.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from opbridge.legacy.run_script import execute
from opbridge.legacy.switch import bridged, enable

__all__ = ["main"]


def main() -> int:
    """Run the script; return its exit code."""
    request = json.loads(sys.argv[1])
    # Random weights are the same in both runs.
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    folder, source = Path(request["folder"]), request["source"]
    with enable() if source is None else contextlib.nullcontext(), _recorded(folder) as count:
        code = execute(request["script"], request["arguments"], source)
    used = [{"kind": item.kind, "name": item.name} for item in bridged()]
    (folder / "result.json").write_text(json.dumps({"models": count[0], "used": used}), encoding="utf-8")
    return code


@contextlib.contextmanager
def _recorded(folder: Path) -> Iterator[list[int]]:
    """Store each model that the block exports as ``0.onnx``, ``1.onnx`` ...; yield their number."""
    original, count = torch.onnx.export, [0]

    def export(*args: Any, **options: Any) -> Any:
        torch.onnx.export = original  # type: ignore[assignment]  # The bridge calls it again.
        try:
            result = original(*args, **options)
        finally:
            torch.onnx.export = export  # type: ignore[assignment]
        file = args[2] if len(args) > 2 else options.get("f")
        if result is not None:
            result.save(str(folder / f"{count[0]}.onnx"))
        elif isinstance(file, (str, Path)):
            onnx.save(onnx.load(file), str(folder / f"{count[0]}.onnx"))
        else:
            return result
        count[0] += 1
        return result

    torch.onnx.export = export  # type: ignore[assignment]
    try:
        yield count
    finally:
        torch.onnx.export = original


if __name__ == "__main__":
    sys.exit(main())
