"""A small task, and what the judge says of answers to it."""

from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.task import task

X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)


@task(
    {"one": (f64(1), f64(5)), "rows": (S, X[0])}, against="x", gradients=True
)
def mix(a, b):
    """the pair (twice a, three times b)"""
    return a * 2, b * 3


def told(answer, wanted=mix):
    message = judge(answer, wanted).message
    assert len(message.splitlines()) <= 16
    return " ".join(message.split())


def without_its_line(answer):
    """A line of this file, when it is quoted, holds the words looked for."""
    lines = judge(answer, mix).message.splitlines()
    kept = [line for line in lines if not line.startswith("  in line")]
    return " ".join(" ".join(kept).split())
