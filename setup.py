"""Compiles the engines' adapters for kernels when opbridge is installed from its source.

They go to the user's cache, not into the package. Without a compiler nothing happens: the first kernel compiles what it
needs, and installing never fails for it.
"""

import re
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCE = Path(__file__).parent / "src"


class BuildPy(build_py):
    """Builds the package, then warms the cache of compiled adapters."""

    def run(self) -> None:
        """See the class."""
        super().run()
        sys.path.insert(0, str(SOURCE))
        try:
            from opbridge.kernels.compiler import compile_adapter

            for adapter in sorted(SOURCE.glob("opbridge/engines/*/adapter.cc")):
                # One that includes its engine's headers has to wait until the engine is there.
                if not re.search(r"#include <\w+/", adapter.read_text()):
                    compile_adapter(adapter)
        except Exception as error:
            print(f"opbridge: the adapters are compiled when they are first needed ({type(error).__name__})")
        finally:
            sys.path.remove(str(SOURCE))


setup(cmdclass={"build_py": BuildPy})
