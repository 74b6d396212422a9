"""Run calls of kernels in a process that preloads the sanitizers, without PyTorch, which would take minutes there.

    python run_kernels.py LIBRARY RESULTS [CALLS]

CALLS is a pickled list of (label, target, arrays, attributes), RESULTS one of the results of each: arrays, or the text
of an error; without CALLS, RESULTS is the operators of the library. The label of each call is printed before it runs,
so that a report of a sanitizer follows its call.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from opbridge.errors import OpbridgeError
from opbridge.kernels.library import KernelLibrary


def main() -> None:
    library, results, *calls = map(Path, sys.argv[1:])
    loaded = KernelLibrary(library)
    found = [_result(loaded, *call) for file in calls for call in pickle.loads(file.read_bytes())]
    results.write_bytes(pickle.dumps(found if calls else loaded.operators))


def _result(library: KernelLibrary, label: str, target: str, arrays: Any, attributes: Any) -> Any:
    print(label, file=sys.stderr, flush=True)
    try:
        return library.run(target, arrays, attributes)
    except OpbridgeError as error:
        return str(error)


if __name__ == "__main__":
    main()
