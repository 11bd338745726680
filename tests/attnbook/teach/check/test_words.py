"""Values as text: short, and the same on every machine."""

import io
import math
import sys

import pytest
import torch
from torch import nn

from attnbook.teach.check.words import (
    brief,
    fill,
    in_cases,
    is_numbers,
    listed,
    number_kind,
    number_name,
    plain_repr,
    say,
    sizes,
)

X = torch.arange(6.0).reshape(2, 3)


class Unkind:
    """Refuses to be printed."""

    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "value, text",
    [
        (X, "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"),
        (torch.zeros(4, 5), "a tensor of shape (4, 5)"),
        (torch.tensor([1 / 3, -0.0]), "[0.3333, 0.0]"),
        (torch.tensor([1.23456e-9]), "[1.235e-09]"),
        (torch.tensor([True]), "[True]"),
        (torch.eye(2).to_sparse(), "a tensor of torch.float32, torch.sparse_"),
        ((X[0], 2), "([0.0, 1.0, 2.0], 2)"),
        ({"a": X[0, :1]}, "{'a': [0.0]}"),
        (nn.Linear(1, 1), "a Linear"),
        (math.sqrt, "sqrt"),
        (1 / 3, "0.333333"),
        (object(), "a object"),
        (Unkind(), "a Unkind"),
        ([Unkind(), X], "(a Unkind, [[0.0"),
    ],
)
def test_a_value_in_brief(value, text):
    assert brief(value).startswith(text)


def test_a_long_row_of_values_is_cut():
    assert brief([X[0, :1]] * 5, most=3) == "([0.0], [0.0], [0.0], and 2 more)"


@pytest.mark.parametrize(
    "words, text",
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (list("abcd"), "a, b, c and d"),
        (list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_words_are_listed(words, text):
    assert listed(words) == text


@pytest.mark.parametrize(
    "number, name",
    [
        (math.sqrt(2), "√2"),
        (2 * math.pi, "2π"),
        (1.5, "3/2"),
        (7.0, "7"),
        (math.sqrt(4 / 3), "√(4/3)"),
        (math.e, "e"),
        (1.41, ""),  # 141/100, whose denominator is too large
        (1.2345, ""),
        (1e200, ""),  # whose square is too large for a float
        (math.inf, ""),
    ],
)
def test_numbers_that_have_a_name(number, name):
    assert number_name(number) == name


def test_small_words():
    assert sizes([X, (X[0], 3), {"a": torch.tensor(1)}]) == "2×3, 3, 3, scalar"
    assert (in_cases(1), in_cases(9)) == ("in one case", "in 9 cases")
    kinds = [number_kind(x) for x in (X, X > 1, X.long(), X + 1j)]
    assert kinds == ["float", "boolean", "integer", "complex number"]
    assert (
        is_numbers([1, [2.0]]) and not is_numbers([]) and not is_numbers([X])
    )
    assert plain_repr(object()) == "a object"
    assert plain_repr(range(2)) == "range(0, 2)"


def test_text_is_wrapped_and_its_words_stay_whole():
    lines = fill("word " * 40 + "x" * 90, "  ").splitlines()
    assert lines[0].startswith("  word") and lines[1].startswith("    word")
    assert all(len(line) <= 79 for line in lines[:-1])
    assert lines[-1] == "    " + "x" * 90


def test_a_terminal_of_ascii_gets_the_signs_written_out(monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    say("|Δ| ≤ √2 é")
    stream.flush()
    assert raw.getvalue().decode() == "|D| <= root 2 \\xe9\n"
