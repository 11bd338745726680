"""Each size of each argument is larger, in some case, than usual blocks."""

from dataclasses import replace

import pytest
import torch
from mutate.beyond import FEW, LONG, sizes_of
from mutate.tame import varied

from attnbook.teach.catalogue import all_tasks

TASKS = all_tasks()


def beyond(name, value):
    return {size.place: size.beyond for size in sizes_of(name, value)}


def test_a_size_is_beyond_a_block_where_the_last_one_is_short():
    for size, far in ((LONG, False), (LONG + 1, True), (2 * LONG, False)):
        assert beyond("v", torch.zeros(size)) == {"v: axis -1": far}
        assert beyond("t", "x" * size) == {"t: characters": far}
    for size, far in ((FEW, False), (FEW + 1, True), (2 * FEW, False)):
        assert beyond("s", [1] * size) == {"s: entries": far}
    assert beyond("n", LONG) == {"n": False}
    assert beyond("n", 2 * LONG) == {"n": True}
    assert beyond("n_heads", FEW + 1) == {"n_heads": True}


def test_few_are_the_leading_axes_and_the_rows_of_whole_numbers():
    q = torch.zeros(17, 17, 131, 130)
    assert all(beyond("q", q).values())
    tokens = torch.zeros(17, 131, dtype=torch.long)
    assert all(beyond("tokens", tokens).values())
    x = torch.zeros(17, 131)
    assert beyond("x", x) == {"x: axis -2": False, "x: axis -1": True}
    assert all(beyond("logits", x).values())
    lengths = torch.zeros(17, dtype=torch.long)
    assert beyond("lengths", lengths) == {"lengths: axis -1": True}


def test_what_is_inside_of_a_list_has_sizes_too():
    texts = [torch.zeros(3), torch.zeros(131)]
    sizes = list(sizes_of("texts", texts))
    assert [size.place for size in sizes] == [
        "texts: entries",
        "texts: axis -1",
        "texts: axis -1",
    ]
    assert [size.beyond for size in sizes] == [False, False, True]
    assert list(sizes_of("scale", 0.5)) == list(sizes_of("causal", True)) == []


@pytest.mark.parametrize(
    "name, label, way",
    [
        (
            "prefix_mask",
            "a prefix of 260, 300 tokens",
            "n beyond 128",
        ),
        (
            "tokens_found",
            "twenty texts, twenty pages of 131",
            "size beyond 128",
        ),
        ("ring", "17 ranks", "sizes: entries beyond 16"),
    ],
)
def test_without_its_large_case_a_task_would_be_tame(name, label, way):
    some = TASKS[name]
    given = dict(some.given)
    given.pop(label)
    assert varied(some)[way] and not varied(replace(some, given=given))[way]
