"""The benchmarks as their tests see them."""

from runpy import run_path
from types import SimpleNamespace

import pytest
from notebooks import ROOT


@pytest.fixture
def script(request, monkeypatch):
    """The benchmark that the test's file names as its `SCRIPT`. Its folder
    is no package, so its names come as those of one object."""
    folder = ROOT / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    path = folder / f"{request.module.SCRIPT}.py"
    return SimpleNamespace(**run_path(str(path)))
