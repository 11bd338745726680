"""Write constraints.txt and uv.lock: the versions that are installed and
work together; and .ci/uv.txt, by which a workflow gets the uv of the lock.

usage: .venv/bin/python tools/constraints.py     after `make test` has passed
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from notebooks import ROOT, write_text
from packaging.specifiers import SpecifierSet

HEAD = """\
# The exact versions that were last validated together. Where one of them
# needs a newer Python than the oldest that the book takes, the line counts
# only there. Written by tools/constraints.py.
"""
OLDEST = "3.11.0"


def line(name: str, version: str, needs: str | None) -> str:
    """One constraint, with a condition if the oldest Python is too old.

    >>> line("soupsieve", "4.1.1", ">=3.11.5")
    'soupsieve==4.1.1; python_full_version >= "3.11.5"'
    >>> line("torch", "2.13.0+cpu", ">=3.11")
    'torch==2.13.0'
    """
    pin = f"{name}=={version.partition('+')[0]}"
    if not needs or SpecifierSet(needs).contains(OLDEST):
        return pin
    lowest = re.search(r">=\s*([\d.]+)", needs).group(1)
    return f'{pin}; python_full_version >= "{lowest}"'


def main() -> int:
    found = {
        line(d.name, d.version, d.metadata.get("Requires-Python"))
        for d in distributions()
        if d.name not in ("attnbook", "pip")
    }
    lines = sorted(found, key=str.lower)
    write_text(ROOT / "constraints.txt", HEAD + "\n".join(lines) + "\n")
    return lock(lines)


def lock(pins: list[str]) -> int:
    """Write uv.lock with these versions, and the public index in it."""
    command = [Path(sys.executable).with_name("uv"), "lock", "--no-config"]
    command += ["--default-index", "https://pypi.org/simple"]
    for pin in pins:
        command += ["-P", pin]
    if code := subprocess.run(command, cwd=ROOT).returncode:
        return code
    write_text(ROOT / ".ci" / "uv.txt", uv_by_hash())
    return 0


def uv_by_hash() -> str:
    """A requirement of uv in the lock's version, by the lock's hashes."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    (uv,) = (package for package in packages if package["name"] == "uv")
    hashes = sorted(wheel["hash"] for wheel in uv["wheels"])
    parts = [f"uv=={uv['version']}", *(f"--hash={h}" for h in hashes)]
    return f"# Written by tools/constraints.py.\n{' '.join(parts)}\n"


if __name__ == "__main__":
    sys.exit(main())
