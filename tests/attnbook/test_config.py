"""Options hold to their types and ranges, in one grammar."""

import math
from dataclasses import dataclass, fields

import numpy as np
import pytest

from attnbook.config import check_fields, option
from attnbook.values import check_sizes, one_of, whole


@dataclass(frozen=True)
class Options:
    steps: int = option(10, "updates", at_least=1)
    share: float = option(0.5, "a part", at_least=0, below=1)
    width: int | None = option(None, "wide", above=3)
    clip: float = option(1.0, "longest", above=0)
    betas: tuple[float, float] = option((0, 0.9), "two", at_least=0, below=1)
    norm: str = option("layer", "kind", choices=("layer", "rms"))
    bias: bool = option(True, "added")

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class More(Options):
    more: int = option(1, "one more", at_least=1)


def test_what_is_in_its_range_is_kept():
    given = dict(steps=1, share=0, width=4, norm="rms", bias=False)
    made = Options(**given, betas=[0.1, 0.2])
    assert {name: getattr(made, name) for name in given} == given
    assert made.betas == (0.1, 0.2)
    assert Options().width is None
    assert type(Options(steps=np.int64(3)).steps) is int
    assert More(steps=2).more == 1


def test_the_help_stands_with_the_field():
    assert fields(Options)[0].metadata["help"] == "updates"


@pytest.mark.parametrize(
    "error, wrong",
    [
        (TypeError, {"steps": 2.5}),
        (TypeError, {"steps": True}),
        (TypeError, {"steps": "3"}),
        (TypeError, {"steps": None}),
        (ValueError, {"steps": 0}),
        (TypeError, {"share": "0.1"}),
        (TypeError, {"share": True}),
        (TypeError, {"share": 0.5j}),
        (ValueError, {"share": 1.0}),
        (ValueError, {"share": -0.1}),
        (ValueError, {"share": math.nan}),
        (ValueError, {"width": 3}),
        (ValueError, {"clip": math.nan}),
        (ValueError, {"clip": math.inf}),
        (ValueError, {"clip": 0}),
        (ValueError, {"betas": (0.1, 1)}),
        (TypeError, {"betas": (0.1,)}),
        (TypeError, {"betas": 0.1}),
        (ValueError, {"norm": "batch"}),
        (ValueError, {"norm": []}),
        (TypeError, {"bias": "no"}),
    ],
)
def test_what_is_not_is_refused_by_name(error, wrong):
    why = "of the wrong type" if error is TypeError else "not allowed"
    words = f"{[*wrong][0]} is {why}; expected .*; got "
    with pytest.raises(error, match=words):
        Options(**wrong)


def test_sizes_and_names_by_themselves():
    check_sizes(d_k=1, d_v=2)
    with pytest.raises(ValueError, match="d_v"):
        check_sizes(d_k=1, d_v=0)
    with pytest.raises(ValueError, match="n"):
        whole("n", 9, at_least=1, at_most=8)
    with pytest.raises(ValueError, match="kind"):
        one_of("kind", [], {"a name": 1})


def test_no_number_is_infinite_or_too_large():
    @dataclass
    class Free:
        peak: float = option(1.0, "highest")

        def __post_init__(self):
            check_fields(self)

    for value in (math.inf, -math.inf, 10**400):
        with pytest.raises(ValueError, match="peak"):
            Free(value)
    assert Free(-3).peak == -3
