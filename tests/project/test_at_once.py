"""Exports at the same time, in processes and in threads: right results, and the caller's state as before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = [
    pytest.mark.newest,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="there is no fork, or no /proc, there"),
]

NET = """
import os, sys, threading
import numpy as np
import torch
import opbridge
from callers_state import differences, state

class Net(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.cummax(torch.hypot(x, x) * self.factor, dim=1).values

X = torch.tensor([[1.0, -3.0, 2.0]])

def export(factor, path, **options):
    return opbridge.export(Net(factor), (X,), path=path, output_names=["y"], overwrite=True, **options)

def is_right(factor, path):
    (y,) = opbridge.load(path)(X.numpy())
    return bool(np.allclose(y, Net(factor)(X).numpy()))

export(0, "first", verify=False)  # What is imported on first use has no part in this.
"""

PROCESSES = f"""{NET}
paths = [f"b{{number}}" for number in range(2)] + ["one", "one"]
children = []
for number, path in enumerate(paths):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            export(number, path, verify=False)
            code = 0
        finally:
            os._exit(code)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
assert all(is_right(number, path) for number, path in enumerate(paths[:2]))
assert is_right(2, "one") or is_right(3, "one")
left = [name for name in os.listdir(".") if name not in {{*paths, "first"}}]
assert not left, left
"""

THREADS = f"""{NET}
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True)
torch.manual_seed(3)
np.seterr(all="raise")
before = state()
verified, errors = [], []

class Refused(torch.nn.Module):
    def forward(self, x):
        return x + x.data_ptr()

def run(number):
    try:
        if number == 3:
            opbridge.export(Refused(), (X,), path="refused")
        else:
            verified.append(export(number, f"b{{number % 2}}", verify=number == 1).verified)
    except Exception as error:
        errors.append(error)

threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(errors) == 1 and isinstance(errors[0], opbridge.CaptureError), errors
assert not os.path.exists("refused")
assert sorted(verified, key=str) == [None, None, True], verified
assert is_right(0, "b0") or is_right(2, "b0")
assert is_right(1, "b1")
assert differences(before, state()) == []
"""


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("program", [PROCESSES, THREADS], ids=["four processes", "four threads"])
def test_exports_at_once(program: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
