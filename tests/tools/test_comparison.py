"""The comparison of outputs: what it lets pass, and what it must not."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from comparison import agree
from nbformat.v4 import new_code_cell, new_notebook, new_output
from notebooks import ROOT


@pytest.mark.parametrize(
    "a, b",
    [
        ("-0.0000", "0.0000"),
        ("[-0. -1.]", "[0. -1.]"),
        ("0.770 ± 0.01", "0.780 ± 0.01"),
        ("-0.002 ± 0.003", "0.001 ± 0.003"),
        ("1.2e-3 ± 1e-4 and 5", "1.3e-3 ± 1e-4 and 5"),
        ("97 ± 2 of 100, 0.5", "99 ± 2 of 100, 0.5"),
    ],
)
def test_equal_outputs_agree(a, b):
    assert agree(a, b) and agree(b, a)


@pytest.mark.parametrize(
    "a, b",
    [
        ("0.1723", "0.1724"),
        ("0.17230000001", "0.17230000002"),
        ("1.0", "1"),
        ("0.5", "-0.5"),
        ("nan", "0.0"),
        ("(2, 3)", "(3, 2)"),
        ("0.770 ± 0.01", "0.781 ± 0.01"),
        ("0.770 ± 0.01", "0.770 ± 0.02"),
        ("0.770 ± 0.01", "0.770 ± 0.01 ± 0.01"),
        ("97 ± 2 of 100, 0.5", "97 ± 2 of 100, 0.6"),
    ],
)
def test_different_outputs_do_not(a, b):
    assert not agree(a, b) and not agree(b, a)


#: Where a training shows its bar unless it is told to be quiet.
BAR = """\
import os, sys
if "ATTNBOOK_QUIET" not in os.environ:
    print("100%|####|", file=sys.stderr)"""


def test_nbval_compares_so(tmp_path):
    """End to end: those cells fail whose output has changed, and one is
    told to be ignored."""
    good = "weights (2, 2)\n[[0.25 0.75]]\nloss 0.770 ± 0.01\n"
    stored = {
        "the same": good,
        "within": good.replace("0.770", "0.762"),
        "beyond": good.replace("0.770", "0.782"),
        "a digit": good.replace("0.25", "0.26"),
        "a word": good.replace("weights", "scores"),
        "nothing": None,
        "ignored": "another",
    }
    tags = {"ignored": ["nbval-ignore-output"]}
    cells = [
        new_code_cell(
            f"{BAR}\nprint({good.rstrip()!r})",
            execution_count=count,
            outputs=[new_output("stream", text=text)] if text else [],
            metadata={"tags": tags.get(name, [])},
        )
        for count, (name, text) in enumerate(stored.items(), start=1)
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "cells.ipynb")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    command = "-m pytest --nbval --nbval-current-env -p no:cacheprovider -rA"
    done = subprocess.run(
        [sys.executable, *command.split(), "--color=no", "cells.ipynb"],
        cwd=tmp_path,
        # As a reader starts it, who has not set what the Makefile sets.
        env={
            **{k: v for k, v in os.environ.items() if k != "ATTNBOOK_QUIET"},
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / folder) for folder in ("tools", "tests/helpers")
            ),
        },
        capture_output=True,
        text=True,
    )
    results = re.findall(r"^(PASSED|FAILED) .*?Cell (\d)", done.stdout, re.M)
    passed = {int(n) for result, n in results if result == "PASSED"}
    assert len(results) == len(stored) and passed == {0, 1, 6}
    assert "the outputs of 2 compared, of 1 not compared" in done.stdout
