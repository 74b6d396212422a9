"""``opbridge completion``: what the shells complete with the script; without shtab the error says how to install it."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opbridge.cli import main

pytestmark = pytest.mark.newest

COMPLETE = """
source {script}
function=$(complete -p opbridge | sed -E 's/.*-F ([^ ]+).*/\\1/')
COMP_WORDS=({words}) COMP_CWORD={last}
"$function" opbridge {word} "${{COMP_WORDS[COMP_CWORD - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


LINES = {
    "opbridge exp": {"export"},
    "opbridge con": {"conformance", "convert-dtype", "convert-opset"},
    "opbridge export --no-": {"--no-verify", "--no-bisect"},
    "opbridge export --engine openv": {"openvino"},
    "opbridge convert-dtype m.onnx bf": {"bfloat16"},
    "opbridge export n": {"net.py"},
    "opbridge export net.py:model -o bui": {"build"},
    "opbridge completion z": {"zsh"},
}
"""Lines, and what their last word is completed to."""


def written(shell: str, folder: Path) -> Path:
    """The script for a shell in a file."""
    pytest.importorskip("shtab")
    file = folder / f"opbridge.{shell}"
    command = [sys.executable, "-m", "opbridge", "completion", shell]
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return file


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("bash", tmp_path_factory.mktemp("completion"))


@pytest.mark.parametrize(("line", "found"), LINES.items())
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(line: str, found: set[str], script: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    (tmp_path / "build").mkdir()
    words = line.split()
    program = COMPLETE.format(
        script=shlex.quote(str(script)), words=shlex.join(words), last=len(words) - 1, word=shlex.quote(words[-1])
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {name.strip().rstrip("/") for name in done.stdout.split("\n") if name} == found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="not run: fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    file = written("fish", tmp_path)
    (tmp_path / "net.py").touch()
    (tmp_path / "build").mkdir()
    for line, found in LINES.items():
        program = f"source {shlex.quote(str(file))}; complete -C {shlex.quote(line)}"
        command = ["fish", "--no-config", "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert {name.partition("\t")[0].rstrip("/") for name in done.stdout.splitlines()} == found, line


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="not run: zsh is not installed")
def test_zsh_completes(tmp_path: Path) -> None:
    file = written("zsh", tmp_path)
    (tmp_path / "net.py").touch()
    (tmp_path / "build").mkdir()
    for line, found in LINES.items():
        shown = typed_in_zsh(
            f'autoload -Uz compinit; compinit -D -u; eval "$(<{shlex.quote(str(file))})"', line, tmp_path
        )
        listed = {row.split()[0].rstrip("/") for row in shown[1:] if " -- " in row}
        assert (listed or {shown[0].split()[-1].rstrip("/")}) == found, line


def typed_in_zsh(set_up: str, line: str, folder: Path) -> list[str]:
    """The lines on the terminal after a line and the tabulator were typed in an interactive shell."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ["TERM"] = "dumb"
        os.execvp("zsh", ["zsh", "-f", "-i"])

    def read(until: bytes) -> bytes:
        """What is shown until the text is shown and nothing follows for a second."""
        shown, deadline = b"", time.monotonic() + 30
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536)
            elif until in shown:
                break
        return shown

    try:
        os.write(terminal, f"PS1=; {set_up}; print REA''DY\n".encode())
        read(b"READY")
        os.write(terminal, f"{line}\t".encode())
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x07]", "", read(line.encode()).decode())
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
    return [row for row in shown.splitlines() if row.strip()]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_with_every_command(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell, "-q"]) == 0
    printed = capfd.readouterr().out
    for name in ("set-dimension", "run-script", "special-values", "ist the operators of a model"):
        assert name in printed


def test_without_shtab_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(
        "error: completion needs the Python package shtab, which is not installed here.\nfix: pip install shtab\n"
    )
