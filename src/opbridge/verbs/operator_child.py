"""The program that checks the operators of a file: ``python -m opbridge.verbs.operator_child REQUEST``.

It writes one line of JSON at the start of each check and for each result. Output of the user's code and of torch goes
to stderr. :mod:`opbridge.verbs.operator_check` is the parent.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from opbridge.engines.process.lifeline import end_with_parent
from opbridge.errors import OpbridgeError
from opbridge.proof.operators.run import run_checks
from opbridge.verbs.export import export

__all__ = ["main"]


def main() -> int:
    """Check one file, then end."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()
    end_with_parent()
    request = json.loads(sys.argv[1])

    def say(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    def begin(target: str, sample: str, check: str) -> None:
        say({"doing": {"target": target, "sample": sample, "check": check}})

    try:
        for result in run_checks(request["file"], request["engines"], begin, export):
            say({"result": result.to_dict()})
    except Exception as error:
        say({"raised": _described(error)})
    answers.close()
    return 0


def _described(error: Exception) -> dict[str, Any]:
    if isinstance(error, OpbridgeError):
        return {**error.to_dict(), "details": error.details}
    if isinstance(error, OSError):
        return {"system": [error.errno, error.strerror, error.filename]}
    details = "".join(traceback.format_exception(error))
    return {"error": type(error).__name__, "message": str(error), "fix": None, "details": details}


if __name__ == "__main__":
    sys.exit(main())
