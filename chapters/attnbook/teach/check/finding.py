"""What is found out about a wrong answer, as data.

The rooms that look for what is wrong make `Finding`s; `telling` alone makes
sentences of them. Whatever is decided (which mistake it is, which question is
asked) is decided by kinds and numbers, so that a sentence can be changed
without changing a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

#: In which other call an answer is wrong that was right on all cases.
CALLED_AGAIN = "called again"
NOT_CONTIGUOUS = "not contiguous in memory"


class Kind(StrEnum):
    """The kinds of findings. Behind each: what a finding of it has."""

    # A result beside the right one.
    SHAPE = "another shape"  # answer, expected
    TRANSPOSE = "the transpose"  # answer, expected where the shape differs
    RESHAPED = "right numbers in another shape"  # answer, expected
    ALONG_AXIS = "one along an axis"  # name, axis, answer, expected
    LENGTH = "another length"  # count, name, where, answer, expected
    NAN = "NaN"  # count, total
    INFINITE = "infinite"  # count, total
    NEARLY = "nearly right"  # gap
    SIGN = "wrong sign"
    FACTOR = "a factor"  # ratio
    OFFSET = "a number added"  # gap
    ONE_OFF = "one too many or too few"  # gap
    TOO_LARGE = "one number off"  # gap
    OFFSET_ALONG = "a number added along an axis"  # name, low, high
    FACTOR_BY_ROW = "a factor in each row"  # low, high
    FUNCTION = "a function of the right numbers"  # name
    BACKWARDS = "backwards"  # axis
    SHIFTED = "one place off"  # gap, axis
    ORDER = "another order"  # axis, only
    COLUMN_SUMS = "columns sum to one"
    ROW_SUMS = "rows do not sum to one"  # low, high
    NOT_ZERO = "not 0 where 0 is right"  # count, total
    SOME_PLACES = "wrong in some places"  # count, total, only
    EVERY_PLACE = "wrong in every place"
    TRUTH = "the other truth value"  # answer, expected
    TRUTHS_EXCHANGED = "True and False exchanged"
    TRUE_TOO_OFTEN = "True too often"  # count, total
    TRUE_TOO_SELDOM = "True too seldom"  # count, total
    # A result of another type.
    FORMAT = "right numbers in another format"  # answer, expected
    NUMBER_TYPE = "another type of numbers"  # answer, expected
    TYPE = "another type"  # answer, expected
    VALUE = "another value"  # answer, expected
    ENTRIES = "other entries"  # answer, expected
    LIST_LENGTH = "a list of another length"  # answer, expected, inner
    LIST_TYPES = "a list of other types"  # answer, expected
    # What happened beside the result.
    CHANGED = "an argument was changed"  # argument
    UNCHANGED = "an argument was not changed"  # argument
    ZERO_GRADIENT = "the gradient is 0"
    # What stopped the answer.
    ERROR = "an error"  # error, advice, line
    BROKEN_OFF = "broken off"  # error, line
    OUT_OF_TIME = "out of time"  # error, line
    OUT_OF_MEMORY = "out of memory"  # error, line
    USES_AUTOGRAD = "uses autograd"
    USES_FUNCTION = "uses a function"  # name
    HOLDS_TOO_MUCH = "too many numbers held"  # count, total
    # What may help: what the answer does instead.
    FLOAT32 = "a float32 on the way"  # line
    ALMOST = "almost right"
    EXCHANGED = "arguments exchanged"  # argument, other
    IGNORED = "an argument ignored"  # argument, name
    INSTEAD = "another value of an argument"  # argument, name
    PARTS_REORDERED = "parts of the result reordered"
    PART_ALONE = "a part of the result alone"  # count
    SUBTRACTED = "the result subtracted"  # argument, name
    TIMES = "the result multiplied"  # argument, name, ratio (a power)
    INCREMENT = "what is added to an argument"  # answer, inner
    LATER_PART = "a later part"  # place, inner
    LIST_REVERSED = "a list reversed"
    LIST_LATE = "a list one place late"
    LIST_EARLY = "a list one place early"
    CUTS_GRADIENT = "no gradient passes"  # name
    HANDS_BACK = "a gradient is off"  # gradient_of
    MAKES_NAN = "a NaN is made"


#: After one of these a reader needs no more help.
SAYS_ALL = frozenset({Kind.CHANGED, Kind.RESHAPED, Kind.FORMAT})


class Line(NamedTuple):
    """A line of the reader's own code; number 0 if it is none of them."""

    number: int
    text: str


class Only(NamedTuple):
    """The part of a table in which all wrong places lie.

    Attributes:
        name: "row" or "column".
        first: the number of the first that has one.
        last: the number of the last.
    """

    name: str
    first: int
    last: int


#: A step into a result: ("part", 1) of a tuple, ("entry", "k") of a mapping.
Step = tuple[str, Any]


@dataclass(frozen=True)
class Finding:
    """One thing that was found out; which attributes count says its kind.

    Attributes:
        kind: what it is.
        case: the label of the case on which it was found.
        place: the steps into the result to where it is.
        gradient_of: the number of the tensor argument whose gradient it is
            about; None where it is about the result.
        name: of a function, a type, an axis, or of what was changed.
        where: "end", "beginning" or "inside".
        argument: the name of an argument.
        other: the name of another argument.
        axis: of the tensor, counted from the last: −1.
        ratio: answer / right result.
        gap: answer − right result.
        low, high: the range of ratios, gaps or sums.
        count, total: so many of so many places, numbers or parts.
        only: where all wrong places are, if not all over.
        advice: which of torch's complaints an error is, see `examine`.
        line: the reader's line that it comes from.
        error: what was raised.
        answer, expected: the two values, or their parts at `place`.
        inner: a finding about a part of this one.
    """

    kind: Kind
    case: str = ""
    place: tuple[Step, ...] = ()
    gradient_of: int | None = None
    name: str = ""
    where: str = ""
    argument: str = ""
    other: str = ""
    axis: int | None = None
    ratio: float = 1.0
    gap: float = 0.0
    low: float = 0.0
    high: float = 0.0
    count: int = 0
    total: int = 0
    only: Only | None = None
    advice: str = ""
    line: Line | None = None
    error: BaseException | None = field(default=None, compare=False)
    answer: Any = field(default=None, compare=False)
    expected: Any = field(default=None, compare=False)
    inner: Finding | None = None


@dataclass(frozen=True)
class Help:
    """What may help a reader whose mistake is not recognised.

    Attributes:
        finding: what the answer seems to do; None if nothing was found.
        question: of the catalogue, to think about; empty if there is none.
        perhaps: whether the question is that of a mistake which goes wrong
            in the same way, but is not this one for certain.
    """

    finding: Finding | None = None
    question: str = ""
    perhaps: bool = False

    def __bool__(self) -> bool:
        return bool(self.finding or self.question)
