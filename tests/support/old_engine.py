"""The oldest ONNX Runtime that pip installs here, in an environment that is made once per test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opbridge import engines
from opbridge.engines.base import Engine

__all__ = ["MADE_TWICE", "OLDEST", "old_engine"]

# A wheel of this version is there for each Python that opbridge runs on.
OLDEST = {(3, 11): "1.15.0", (3, 12): "1.17.0", (3, 13): "1.20.0"}.get(sys.version_info[:2], "1.23.2")

MADE_TWICE: list[str] = []
"""What two processes answered that asked for the environment at the same time."""

ASK = """
import json
from opbridge.engines.environments import engine_environment
made = engine_environment("onnxruntime", "{version}")
print(json.dumps([made.version, str(made.folder)]))
"""


@pytest.fixture(scope="session")
def old_engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The engine; two processes make its environment at once."""
    base = tmp_path_factory.getbasetemp()
    # The workers of pytest-xdist have folders of their own inside one that they share.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    # Whoever runs these tests often keeps the environment: OPBRIDGE_TEST_ENGINES names a folder for it.
    cache = Path(os.environ.get("OPBRIDGE_TEST_ENGINES") or shared / "engines-cache")
    environment = {**os.environ, "OPBRIDGE_CACHE": str(cache)}
    command = [sys.executable, "-c", ASK.format(version=OLDEST)]
    children = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        said, errors = child.communicate(timeout=600)
        assert child.returncode == 0, errors
        MADE_TWICE.append(json.loads(said.splitlines()[-1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPBRIDGE_CACHE", str(cache))
        return engines.get(f"onnxruntime=={OLDEST}")


def cache_of(engine: Engine) -> Path:
    """The cache that has the engine's environment."""
    assert engine.python is not None
    return engine.python.parents[4]
