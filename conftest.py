"""nbval compares the outputs of notebooks as `comparison` does.

It stands at the root because pytest reads a `conftest.py` only for the
folders below it, and the notebooks lie in `chapters/`.
"""

from __future__ import annotations

import contextlib
import os

import pytest
from comparison import Output
from kernels import forked_kernels

_counts = {"run": 0, "compared": 0, "not compared": 0}


def pytest_configure(config):
    """Keep the bars of a training off the error stream of notebooks, which
    would be an output that the stored notebook has not. The kernels inherit
    the variable, whoever starts pytest."""
    options = "nbval", "nbval_lax"
    if any(config.getoption(option, False) for option in options):
        os.environ["ATTNBOOK_QUIET"] = "1"
        kernels = contextlib.ExitStack()
        kernels.enter_context(forked_kernels())
        config.add_cleanup(kernels.close)


def pytest_collection_modifyitems(items):
    """Let every notebook cell compare by `comparison.agree`."""
    for item in items:
        if hasattr(item, "cell"):
            item.sanitize = _as_output(item.sanitize)


def _as_output(sanitize):
    def sanitized(text):
        text = sanitize(text)
        return Output(text) if isinstance(text, str) else text

    return sanitized


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when != "call" or not hasattr(item, "cell"):
        return
    if outcome.get_result().passed:
        _counts["run"] += 1
        if any(_has_text(output) for output in item.cell.outputs):
            compared = item.options["check"] and not item.options["skip"]
            _counts["compared" if compared else "not compared"] += 1


def _has_text(output):
    """Whether there is more to compare than a figure, which is not."""
    data = output.get("data", {})
    return not data or "image/png" not in data


def pytest_terminal_summary(terminalreporter):
    if _counts["run"]:
        terminalreporter.write_line(
            "notebooks: {run} cells run, the outputs of {compared} compared, "
            "of {not compared} not compared".format_map(_counts)
        )
