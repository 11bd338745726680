"""Checks of one value: what is good comes back, and the rest is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbook.values import check_sizes, number, one_of, whole


@given(st.integers(), st.integers(), st.integers())
def test_a_whole_number_is_let_pass_exactly_within_its_bounds(n, low, high):
    if low <= n < high:
        assert whole("n", n, at_least=low, below=high) == n
    else:
        with pytest.raises(ValueError, match=f"^n .*got {n}$"):
            whole("n", n, at_least=low, below=high)


@pytest.mark.parametrize("value", [True, 2.0, "2", None, np.float64(2)])
def test_what_is_no_whole_number_is_of_the_wrong_type(value):
    with pytest.raises(TypeError, match="^n is of the wrong type; expected a"):
        whole("n", value)


def test_numpys_whole_numbers_become_pythons():
    found = whole("n", np.int64(3))
    assert type(found) is int and found == 3


@pytest.mark.parametrize("value", [0.0, 0.5, 1 / 3, 0])
def test_a_number_comes_back_as_it_is(value):
    assert number("p", value, at_least=0, below=1) is value


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, 1.0, -0.1])
def test_a_number_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match="^p is not allowed; expected a fin"):
        number("p", value, at_least=0, below=1)


def test_a_number_may_be_negative_where_nothing_else_is_said():
    assert number("x", -2.5) == -2.5
    assert number("x", -(10**300)) == -(10**300)
    for value in (-math.inf, -(10**400)):
        with pytest.raises(ValueError, match="^x is not allowed"):
            number("x", value)


def test_the_message_says_the_bounds():
    expected = "expected a whole number, at least 1, at most 9; got 0$"
    with pytest.raises(ValueError, match=expected):
        whole("n", 0, at_least=1, at_most=9)
    with pytest.raises(ValueError, match="a finite number, below 1; got 1$"):
        number("p", 1, below=1)


@pytest.mark.parametrize("value", [True, "0.5", None, 1j])
def test_what_is_no_number_is_of_the_wrong_type(value):
    with pytest.raises(TypeError, match="^p is of the wrong type"):
        number("p", value)


def test_a_name_is_one_of_those_that_there_are():
    assert one_of("norm", "rms", ("layer", "rms")) == "rms"
    for value in ("RMS", "", None, 1):
        with pytest.raises(ValueError, match="expected one of layer, rms"):
            one_of("norm", value, ("layer", "rms"))


def test_the_names_may_come_one_after_another():
    """As from a generator, which can be read only once."""
    assert one_of("norm", "rms", iter(("layer", "rms"))) == "rms"
    with pytest.raises(ValueError, match="expected one of layer, rms; got"):
        one_of("norm", "batch", iter(("layer", "rms")))


def test_the_first_size_that_is_none_is_named():
    check_sizes(d_model=1, n_heads=2)
    with pytest.raises(ValueError, match="^n_heads is not allowed"):
        check_sizes(d_model=1, n_heads=0)
