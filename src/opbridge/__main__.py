"""The command ``opbridge``, also as ``python -m opbridge``; interrupted while it starts, it ends in one line."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["main"]

_SENDS_NOTHING = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""What keeps ONNX Runtime and Ray from sending facts about the model and the machine to their makers."""


def main() -> int:
    """Run the command line, and return the exit code."""
    # The default looks through all objects of torch hundreds of times: a fifth of the time of a short export.
    gc.set_threshold(100_000, 50, 50)
    try:
        _open_standard_files()
        for name, value in _SENDS_NOTHING.items():
            os.environ.setdefault(name, value)
        run = _imported()
        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        # All is done and printed; an interrupt of Python's own end would only print a traceback.
        with contextlib.suppress(ValueError):  # Only the main thread may.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _imported() -> Callable[[], int]:
    """The command line. An interrupt of its import ends the process at once: modules can make any error of it."""
    previous = signal.getsignal(signal.SIGINT)
    with contextlib.suppress(ValueError):  # Only the main thread may.
        if previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
    from opbridge.cli import main as run

    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, previous)
    return run


def _end(number: int, frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


def _open_standard_files() -> None:
    """Open what the caller closed (``>&-``), or the first files that are opened would be taken for stdout or stderr."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    sys.exit(main())
