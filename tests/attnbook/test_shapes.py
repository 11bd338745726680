"""Shapes and types of tensors are judged in one place."""

import pytest
import torch
from torch import ones

from attnbook.shapes import check_tokens, expect

QKV = ("... T d_k", "... S d_k", "... S d_v")


def attention(q, k, v):
    return expect("float", **dict(zip("qkv", zip((q, k, v), QKV))))


def test_the_message_names_the_axis_what_was_expected_and_what_came():
    words = (
        r"d_k is both 2 and 3; expected q \(..., T, d_k\), .*; got q \(3, 2"
    )
    with pytest.raises(ValueError, match=words):
        attention(ones(3, 2), ones(4, 3), ones(4, 5))


def test_what_fits_gives_the_leading_axes():
    assert attention(ones(3, 2), ones(4, 2), ones(4, 5)) == ()
    found = attention(ones(6, 1, 3, 2), ones(7, 4, 2), ones(4, 5))
    assert found == (6, 7) and type(found) is tuple
    assert attention(ones(0, 3, 2), ones(1, 4, 2), ones(4, 5)) == (0,)
    assert expect("integer", x=(ones(2, 3).long(), "B 3"), B=2) == ()
    x, y = ones(1, 2), ones(3).double()  # of any types, if none is asked for
    assert expect(x=(x, "T d"), y=(y, "S"), z=(x > 0, "T d")) == ()
    for kind, given in (("bool", x > 0), ("bool or float", x > 0)):
        assert expect(kind, x=(given, "T d")) == ()
    assert expect("bool or float", x=(x, "T d"), y=(y, "S")) == ()


@pytest.mark.parametrize(
    "shapes, named",
    {
        "another length": ([(3, 2), (4, 2), (5, 5)], "S is both 4 and 5"),
        "leading": ([(2, 3, 2), (3, 4, 2), (4, 5)], "leading axes"),
        "missing": ([(3,), (4, 2), (4, 5)], "q has no axis T;"),
        "none": ([(3, 2), (), (4, 5)], "k has no axis S, d_k;"),
        "empty": ([(3, 2), (0, 2), (0, 5)], "axis S of k is empty"),
        "no width": ([(3, 0), (4, 0), (4, 5)], "axis d_k of q is empty"),
    }.values(),
)
def test_shapes_that_do_not_fit_are_refused(shapes, named):
    with pytest.raises(ValueError, match=named):
        attention(*(ones(shape) for shape in shapes))


@pytest.mark.parametrize("axes", ["... T d", "... T 5"])
def test_a_size_that_is_known_is_asked_for(axes):
    assert expect(x=(ones(2, 3, 5), axes), d=5) == (2,)
    with pytest.raises(ValueError, match=r"of x is 4; expected .*5\)"):
        expect(x=(ones(3, 4), axes), d=5)


def test_without_dots_there_are_no_other_axes():
    with pytest.raises(ValueError, match="x has 3 axes"):
        expect(x=(ones(1, 2, 3), "B T"))


@pytest.mark.parametrize(
    "kind, x",
    [
        (None, [1.0]),
        ("float", ones(2).long()),
        ("float", ones(2) + 0j),
        ("bool", ones(2)),
        ("bool or float", ones(2).long()),
        ("integer", ones(2)),
        ("integer", ones(2) > 0),
        ("integer", ones(2) + 0j),
        (torch.float64, ones(2)),
    ],
)
def test_another_type_is_a_type_error(kind, x):
    found = getattr(x, "dtype", "list")
    with pytest.raises(TypeError, match=f"x is .* expected .*; got .*{found}"):
        expect(kind, x=(x, "T"))
    with pytest.raises(TypeError, match="y is"):
        expect("integer", x=(ones(2).long(), "T"), y=(ones(2), "T"))


def test_floating_point_tensors_are_of_one_type():
    words = "q, k, v .* different types; .*; got q of torch.float32, k of tor"
    with pytest.raises(TypeError, match=words):
        attention(ones(3, 2), ones(4, 2).double(), ones(4, 5))


@pytest.mark.parametrize(
    "x, error, named",
    [
        ([1.0], TypeError, "tokens is"),
        (ones(2, 3).double(), TypeError, "tokens is"),
        (ones(2, 5), ValueError, "axis d of tokens"),
        (ones(0, 3), ValueError, "axis T of tokens"),
    ],
)
def test_tokens_that_do_not_fit_a_weight_are_refused(x, error, named):
    weight = ones(5, 3)
    axes = "... T d"
    check_tokens(weight, axes, ones(2, 3))
    with pytest.raises(error, match=named):
        check_tokens(weight, axes, x, "tokens")


# ---- what mutants once survived


def test_a_third_tensor_of_another_type_or_batch_is_refused():
    x = torch.ones(2, 3)
    with pytest.raises(TypeError, match="different types"):
        expect("float", a=(x, "T d"), b=(x, "T d"), c=(x.double(), "T d"))
    batched = torch.ones(4, 2, 3), torch.ones(4, 2, 3), torch.ones(5, 2, 3)
    named = zip("abc", batched)
    with pytest.raises(ValueError, match="leading axes"):
        expect("float", **{name: (x, "... T d") for name, x in named})
