"""The comparison of outputs: what it lets pass, and what it must not."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from book import COMPARISON
from nbformat.v4 import new_code_cell, new_notebook, new_output
from notebooks import ROOT, notebooks, read

FLOAT, TOLERANCE = COMPARISON.FLOAT, COMPARISON.TOLERANCE
close = COMPARISON.close


@pytest.mark.parametrize(
    "a, b",
    [
        ("0.1723", "0.1723"),
        ("-0.0000", "0.0000"),
        ("1e-05", "1.0e-05"),
        ("[0.1 0.2]", "[0.10 0.20]"),
        ("x = 0.50000000001", "x = 0.5"),
        ("(2, 3) and 4", "(2, 3) and 4"),
    ],
)
def test_equal_outputs_pass(a, b):
    assert close(a, b)


@pytest.mark.parametrize(
    "a, b",
    [
        ("0.1723", "0.1724"),
        ("123.456", "123.457"),
        ("1e-12", "1e-13"),
        ("0.5", "-0.5"),
        ("0.0000", "0.0001"),
        ("(2, 3)", "(3, 2)"),
        ("5 cases", "6 cases"),
        ("2×3", "2×4"),
        ("agrees", "disagrees"),
        ("0.5 0.5", "0.5"),
        ("nan", "0.0"),
        ("1.0", "1"),
        ("#", "0.5"),
        ("# 0.5", "0.5 #"),
        ("0.5 # 0.25", "# 0.5 0.25"),
        ("v0.10000001", "v0.1"),
        ("1.0.10000001", "1.0.1"),
    ],
)
def test_different_outputs_fail(a, b):
    assert not close(a, b)


def texts(notebook):
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            data = output.get("data", {})
            yield from (v for k, v in data.items() if k.startswith("text/"))


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_any_changed_digit_of_a_stored_output_fails(path):
    changed = 0
    for text in texts(read(path)):
        for found in re.finditer(r"\d", text):
            at = found.start()
            digit = str((int(text[at]) + 1) % 10)
            # Only what stands near the digit matters, and it is faster.
            near = slice(max(0, at - 40), at + 40)
            other = text[near.start : at] + digit + text[at + 1 : near.stop]
            assert not close(text[near], other), f"{text[near]!r} = {other!r}"
            changed += 1
    assert changed > 0


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_no_stored_float_has_more_digits_than_the_tolerance_can_tell(path):
    for text in texts(read(path)):
        for number in FLOAT.findall(text):
            mantissa, _, power = number.lower().partition("e")
            decimals = len(mantissa.partition(".")[2])
            last_place = 10.0 ** (int(power or 0) - decimals)
            told_apart = TOLERANCE * abs(float(number)) < last_place
            assert told_apart, f"{number} in {text[:80]!r}"


def test_nbval_with_this_conftest(tmp_path):
    """End to end: of seven cells, the four with a changed output fail, and
    one of the others is told to be ignored."""
    good = "weights (2, 2)\n[[0.25 0.75]\n [0.5  0.5 ]]\n"
    stored = {
        "the same": good,
        "written another way": good.replace("0.25", "0.250000001"),
        "a digit": good.replace("0.25", "0.26"),
        "a word": good.replace("weights", "scores"),
        "a shape": good.replace("(2, 2)", "(2, 3)"),
        "nothing": None,
        "ignored": "another",
    }
    cells = []
    for count, (name, text) in enumerate(stored.items(), start=1):
        ignored = ["nbval-ignore-output"] if name == "ignored" else []
        outputs = (
            [new_output("stream", name="stdout", text=text)] if text else []
        )
        cells.append(
            new_code_cell(
                f"print({good.rstrip()!r})",
                execution_count=count,
                outputs=outputs,
                metadata={"tags": ignored},
            )
        )
    nbformat.write(new_notebook(cells=cells), tmp_path / "cells.ipynb")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--nbval",
            "--nbval-current-env",
            "-p",
            "no:cacheprovider",
            "-rA",
            "--color=no",
            "cells.ipynb",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    results = re.findall(r"^(PASSED|FAILED) .*?Cell (\d)", done.stdout, re.M)
    assert sorted(results, key=lambda r: r[1]) == [
        ("PASSED", "0"),
        ("PASSED", "1"),
        ("FAILED", "2"),
        ("FAILED", "3"),
        ("FAILED", "4"),
        ("FAILED", "5"),
        ("PASSED", "6"),
    ]
    assert (
        "3 cells run, the outputs of 2 compared, of 1 not compared"
        in done.stdout
    )
