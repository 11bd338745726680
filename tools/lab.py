"""Start JupyterLab in the folder of the chapters, with the book's own kernel.

usage: .venv/bin/python tools/lab.py [OPTION ...]      as `make lab`

JupyterLab is installed into the book's environment when it is missing there
(a minute, some 40 packages), because neither the pages nor the tests need
it. The options are handed to it: with `--no-browser`, for example, it only
prints the address to open.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from dependencies import bounds
from install import succeeds
from notebooks import CHAPTERS, ROOT


def is_installed() -> bool:
    """Whether JupyterLab is in the environment that runs this."""
    return importlib.util.find_spec("jupyterlab") is not None


def install() -> bool:
    """Install JupyterLab by pip, and return whether that succeeded.

    The versions of what the book needs stay as they are.
    """
    print("JupyterLab is installed first; this takes about a minute.")
    return succeeds(
        "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *bounds("lab"),
        f"-c{Path('constraints.txt')}",
    )


def main(options: list[str]) -> int:
    """Install JupyterLab where it is missing, start it, and return its exit
    status once it has ended."""
    if not is_installed() and not install():
        print(
            "JupyterLab could not be installed; expected a package index that "
            "pip reaches; pip has said above what it met",
            file=sys.stderr,
        )
        return 1
    command = [sys.executable, "-m", "jupyterlab", str(CHAPTERS), *options]
    try:
        return subprocess.run(command, cwd=ROOT).returncode
    except KeyboardInterrupt:  # JupyterLab has asked, and has ended
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
