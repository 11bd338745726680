"""A result becomes plain data, and nothing in it is asked again."""

import warnings
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from attnbook.teach.check.settled import LARGEST, Foreign, settled
from attnbook.teach.check.words import brief

Pair = namedtuple("Pair", "a b")
X = torch.ones(2)


class Evil:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __eq__ = __repr__
    __hash__ = object.__hash__


@pytest.mark.parametrize(
    "given, kind",
    [
        (None, type(None)),
        (1, int),
        ("a", str),
        ({1, 2}, set),
        (Pair(1, 2), tuple),
        (OrderedDict(a=1), dict),
        ([1, [2]], list),
        (np.float32(1), np.float32),
        (X, torch.Tensor),
        (torch.nn.Parameter(X), torch.Tensor),
        (torch.tensor([1j]).conj(), torch.Tensor),
    ],
)
def test_plain_things_stay_plain(given, kind):
    found = settled(given)
    assert type(found) is kind
    assert kind is not torch.Tensor or not found.requires_grad


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


@pytest.mark.parametrize(
    "make",
    [
        Evil,
        lambda: random_module(),
        lambda: X.to_sparse(),
        lambda: X.to("meta"),
        quantised,
        lambda: X[:1].expand(LARGEST + 1),
        lambda: np.array([None]),
        lambda: {Evil()},
        lambda: (n for n in ()),
    ],
)
def test_all_else_is_foreign_and_can_be_named(make):
    found = settled(make())
    assert isinstance(found, Foreign)
    assert found.told and brief(found) == found.short
    assert not settled([Evil()])[0].same(settled(Evil()))


def random_module():
    import random

    return random


def test_a_list_that_has_itself_inside_ends():
    endless = []
    endless.append(endless)
    assert isinstance(settled(endless), Foreign)


def test_two_foreign_things_are_asked_whether_they_are_equal():
    assert settled(torch.float32).same(settled(torch.float32))
    assert not settled(torch.float32).same(settled(torch.float64))
