"""Prompts: padded into one tensor, refused where no model could go on, and
read through a window where they are longer than the context."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import random_model

from attnbook.gpt import GPTConfig
from attnbook.prompts import check_prompt, pad_left, window_start

tokens = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(st.lists(tokens, min_size=1, max_size=5))
def test_padding_is_on_the_left_and_marked(prompts):
    padded, real = pad_left(prompts)
    if real is None:
        assert len({len(prompt) for prompt in prompts}) == 1
        real = torch.ones_like(padded, dtype=torch.bool)
    for prompt, row, mark in zip(prompts, padded, real, strict=True):
        assert row[mark].tolist() == prompt
        n_padded = len(row) - len(prompt)
        assert row[:n_padded].tolist() == [0] * n_padded
        assert mark.tolist() == [False] * n_padded + [True] * len(prompt)


@pytest.mark.parametrize("sequences", [[], [[]], [[1], []]])
def test_pad_left_refuses_nothing(sequences):
    with pytest.raises(ValueError, match="prompt.*; expected .*; got "):
        pad_left(sequences)


@given(st.integers(1, 200), st.integers(1, 50))
def test_the_window_holds_the_last_tokens_and_never_more_than_fit(n, context):
    start = window_start(n, context)
    assert 0 <= start < n
    assert n - start <= context
    if n <= context:
        assert start == 0
    else:  # at least half of what the model can read is kept
        assert n - start >= context / 2
        assert start >= window_start(n - 1, context)


def test_the_window_moves_once_in_half_a_context():
    starts = [window_start(n, 10) for n in range(1, 101)]
    moves = [n for n in range(1, 100) if starts[n] != starts[n - 1]]
    assert moves == list(range(10, 100, 5))


SMALL = GPTConfig(vocab_size=12, context=8, d_model=4, n_heads=2, n_layers=1)


def test_a_prompt_of_known_tokens_is_let_pass_at_any_length():
    model = random_model(SMALL)
    for prompt in ([0], (11, 0), [5] * 100):
        check_prompt("the prompt", prompt, model, 1, [])


@pytest.mark.parametrize(
    "prompt, n, stop, error, said",
    [
        ([], 1, [], ValueError, "the prompt has no tokens"),
        ([12], 1, [], ValueError, "token 0 of the prompt"),
        ([0, -1], 1, [], ValueError, "token 1 of the prompt"),
        ([0.5], 1, [], TypeError, "token 0 of the prompt"),
        (7, 1, [], TypeError, "the prompt is of the wrong type"),
        ([0], 0, [], ValueError, "max_new_tokens"),
        ([0], 1, [12], ValueError, "token 0 of stop"),
        ([0], 1, 3, TypeError, "stop is of the wrong type"),
    ],
)
def test_what_no_model_can_go_on_from_is_refused(prompt, n, stop, error, said):
    with pytest.raises(error, match=said):
        check_prompt("the prompt", prompt, random_model(SMALL), n, stop)
