"""Compile the engines' adapters for kernels when opbridge is installed from source.

The adapters go to the user's cache, not into the package. Without a compiler they are skipped, and the first kernel
compiles what it needs, so an installation never fails because of them.
"""

import re
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCE = Path(__file__).parent / "src"


class BuildPy(build_py):
    """The build step that also compiles the adapters."""

    def run(self) -> None:
        """Build the package, and compile the adapters into the cache."""
        super().run()
        sys.path.insert(0, str(SOURCE))
        try:
            from opbridge.kernels.compiler import compile_adapter

            for adapter in sorted(SOURCE.glob("opbridge/engines/*/adapter.cc")):
                # An adapter that includes its engine's headers is compiled when the engine is installed.
                if not re.search(r"#include <\w+/", adapter.read_text()):
                    compile_adapter(adapter)
        except Exception as error:
            print(f"opbridge: the adapters are compiled when they are first needed ({type(error).__name__})")
        finally:
            sys.path.remove(str(SOURCE))


setup(cmdclass={"build_py": BuildPy})
