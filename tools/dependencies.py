"""Write what follows from the dependencies in pyproject.toml and uv.lock.

usage: .venv/bin/python tools/dependencies.py [--installed]

Dependencies are written in one place, the groups of pyproject.toml; uv.lock
has their exact versions, and is brought up to date here. From the two are
made:

- requirements.txt, the same bounds for pip;
- constraints.txt, the exact versions for pip;
- .binder/environment.yml, what the notebooks need in Binder, by conda's names;
- .ci/uv.txt, by which a workflow gets the uv of the lock, to the hash.

With --installed the lock first takes the versions that are installed here.
Do this after `make test CONSTRAINTS=` has passed with the newest ones.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from notebooks import ROOT, write_text
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BY = "Written by tools/dependencies.py from pyproject.toml"

#: Packages that have another name in conda-forge. `pytorch-cpu` comes without
#: CUDA, since Binder has no graphics cards and little room.
CONDA = {"torch": "pytorch-cpu", "huggingface-hub": "huggingface_hub"}


def project() -> dict:
    """What is in pyproject.toml now, as a dictionary."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def bounds(group: str = "book") -> list[str]:
    """The requirements of a group, with those of the groups that it includes.

    They come in the order of pyproject.toml.
    """
    found = []
    for entry in project()["dependency-groups"][group]:
        if isinstance(entry, str):
            found.append(entry)
        else:
            found += bounds(entry["include-group"])
    return found


def requirements() -> str:
    """The text of requirements.txt: all that the book needs, with the
    bounds of the versions."""
    head = f"# {BY}, which says what each is for.\n"
    return head + "\n".join(bounds()) + "\n"


def constraints() -> str:
    """The text of constraints.txt: the exact versions that uv.lock has."""
    head = (
        "# The exact versions that were last validated together.\n"
        f"# {BY} and uv.lock.\n"
    )
    exported = _uv(
        "export",
        "--frozen",
        "--no-hashes",
        "--no-annotate",
        "--no-header",
        "--no-emit-project",
    )
    return head + exported


def environment() -> str:
    """The text of .binder/environment.yml: what the package needs, and a
    Jupyter kernel."""
    told = project()["project"]
    bounded = {
        canonicalize_name(Requirement(text).name): Requirement(text)
        for text in bounds()
    }
    lines = [f"python{told['requires-python']}"]
    for needed in ["ipykernel", *told["dependencies"]]:
        name = canonicalize_name(Requirement(needed).name)
        lines.append(f"{CONDA.get(name, name)}{bounded[name].specifier}")
    listed = "\n".join(f"  - {line}" for line in lines)
    return (
        f"# What the notebooks need in Binder. {BY}.\n"
        "channels:\n  - conda-forge\n"
        f"dependencies:\n{listed}\n"
    )


def uv_by_hash() -> str:
    """The text of .ci/uv.txt: the version of uv in the lock, with hashes."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    (uv,) = (package for package in packages if package["name"] == "uv")
    hashes = sorted(wheel["hash"] for wheel in uv["wheels"])
    parts = [f"uv=={uv['version']}", *(f"--hash={h}" for h in hashes)]
    return f"# {BY} and uv.lock.\n{' '.join(parts)}\n"


#: Each file that is made, and what makes its text.
FILES = {
    "requirements.txt": requirements,
    "constraints.txt": constraints,
    ".binder/environment.yml": environment,
    ".ci/uv.txt": uv_by_hash,
}


def installed() -> list[str]:
    """The versions that are installed here, as `name==version`.

    A build's own mark is left out: `torch 2.13.0+cpu` is `torch==2.13.0`.
    """
    return [
        f"{found.name}=={found.version.partition('+')[0]}"
        for found in distributions()
        if found.name not in ("attnbook", "pip")
    ]


def lock(pins: list[str]) -> None:
    """Bring uv.lock up to date.

    The public index is written into it, no matter which index is set up here.

    Args:
        pins: the versions to take, as `name==version`. All other packages stay
            at the versions that the lock has.
    """
    options = ["--default-index", "https://pypi.org/simple"]
    for pin in pins:
        options += ["--upgrade-package", pin]
    _uv("lock", *options)


def _uv(command: str, *options: str) -> str:
    """Run a command of uv in the repository, and return what it prints.

    uv reads its settings in pyproject.toml. By these it does not follow the
    dependencies that the packages of the two published models name.

    Raises:
        SystemExit: uv failed; it has said why on stderr.
    """
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [uv, command, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def main(arguments: list[str]) -> int:
    """Bring the lock up to date and write the files; the exit status."""
    if arguments not in ([], ["--installed"]):
        print(__doc__, file=sys.stderr)
        return 2
    lock(installed() if arguments else [])
    for name, text in FILES.items():
        write_text(ROOT / name, text())
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
