"""What cases are made of, and the tensors that watch what is done to them."""

import pytest
import torch
from torch import nn

from attnbook.teach.check.inputs import (
    Labelled,
    Watched,
    drawn,
    f64,
    ints,
    marks,
    randns,
    wary,
    watched,
)


def test_small_tensors_are_written_down():
    assert f64(1, 2).dtype == torch.float64
    assert f64([1, 2], [3, 4]).tolist() == [[1, 2], [3, 4]]
    assert ints(1, 2).dtype == torch.int64
    assert marks("10", "01").tolist() == [[True, False], [False, True]]
    assert marks().dtype == torch.bool and marks().numel() == 0


def test_drawn_tensors_hang_on_their_seeds():
    a, b = randns((2, 3), (4,), seed=5)
    assert a.shape == (2, 3) and b.shape == (4,)
    (again,) = randns((4,), seed=6)
    assert torch.equal(b, again)


def test_no_parameter_of_a_drawn_module_changes_nothing():
    module = drawn(nn.TransformerEncoderLayer(8, 2, 16), seed=1)
    for name, parameter in module.named_parameters():
        assert parameter.dtype == torch.float64
        assert not (parameter == 0).any() and not (parameter == 1).any(), name
        is_scale = "norm" in name and name.endswith("weight")
        assert abs(parameter.mean().item() - is_scale) < 0.6, name


def test_a_labelled_function_is_called_and_printed():
    double = Labelled("twice", lambda x: 2 * x)
    assert double(3) == 6 and repr(double) == "twice"


def test_a_watched_tensor_is_not_made_large():
    (x,) = watched(torch.ones(200, 2))
    assert (x @ x.mT[:, :50]).shape == (200, 50)
    with pytest.raises(ValueError, match=r"at most 10000.*got \(200, 200\)"):
        x @ x.mT


def test_a_watched_tensor_refuses_what_is_barred():
    class NoSoftmax(Watched):
        BARRED = ("softmax",)

    x = torch.ones(3).as_subclass(NoSoftmax)
    assert (x.exp() > 1).all()
    with pytest.raises(ValueError, match="does without softmax"):
        x.softmax(-1)


def test_a_wary_tensor_refuses_a_nan_that_would_be_replaced():
    x = wary(torch.tensor([0.0, 1.0]))
    assert x.exp().sum() > 1
    with pytest.raises(ValueError, match="a NaN was made on the way"):
        (x / x).nan_to_num()
