"""Guessing ahead: the law of what is written, summed over all ways that the
program can go; what is read, kept and taken back; the calls it takes."""

import copy
import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_model

import attnbook.speculative
from attnbook.generate import Sampling, complete
from attnbook.gpt import POSITIONS, GPTConfig
from attnbook.server import Server
from attnbook.speculative import (
    Reader,
    as_alone,
    every_path,
    expected_calls,
    guess_ahead,
    likeliest,
    look_up_draft,
    picker,
    residual,
    verify,
    write,
)

SMALL = GPTConfig(vocab_size=7, context=40, d_model=16, n_heads=4, n_layers=2)
V = 3
tried = settings(deadline=None, derandomize=True, max_examples=60)


@functools.cache
def small(seed=0, **changes):
    return random_model(dataclasses.replace(SMALL, **changes), seed)


def table(text, seed, holes=0.0):
    """Probabilities (V,) that hang on the whole text; some may be 0."""
    return _table(tuple(text), seed, holes)


@functools.cache
def _table(text, seed, holes):
    rng = np.random.default_rng([seed, *text])
    p = rng.random(V) ** 2 * (rng.random(V) >= holes)
    p[int(rng.integers(V))] += 0.1
    return torch.tensor(p / p.sum())


def target_of(seed, holes=0.0):
    def read(text, n):
        starts = range(len(text) - n + 1, len(text) + 1)
        return torch.stack([table(text[:end], seed, holes) for end in starts])

    return read


def least_likely(text):
    """All on what the target of seed 1 wants least."""
    p = torch.zeros(V, dtype=torch.float64)
    p[table(text, 1).argmin()] = 1
    return p


DRAFTS = {
    "another": lambda text: table(text, 2),
    "the truth": lambda text: table(text, 1),
    "with holes": lambda text: table(text, 3, holes=0.5),
    "sure of the worst": least_likely,
    "uniform": lambda text: torch.full((V,), 1 / V, dtype=torch.float64),
    "sometimes none": lambda text: table(text, 2) if text[-1] else None,
    "never": lambda text: None,
}


def enumerated(target, draft, text, n, k):
    """The law of the written tokens, and the expected calls."""
    law = {}
    calls = 0.0
    ways = every_path(
        lambda pick: list(guess_ahead(target, draft, text, n, k, pick))
    )
    for rounds, probability in ways:
        tokens = tuple(sum(rounds, []))
        law[tokens] = law.get(tokens, 0.0) + probability
        calls += probability * len(rounds)
    return law, calls


def wanted(target, text, n):
    """The target's own law, one token after the other."""
    law = {(): 1.0}
    for _ in range(n):
        law = {
            (*tokens, token): share * chance
            for tokens, share in law.items()
            for token, chance in enumerate(target([*text, *tokens], 1)[0])
        }
    return {tokens: float(share) for tokens, share in law.items() if share}


def assert_same_law(found, expected):
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)
    for tokens in found.keys() | expected.keys():
        difference = found.get(tokens, 0.0) - expected.get(tokens, 0.0)
        assert abs(difference) <= 1e-12, tokens


# ---- the law


@pytest.mark.parametrize("k, holes", [(0, 0.0), (1, 0.4), (2, 0.0), (2, 0.4)])
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_what_is_written_has_the_targets_law(draft, k, holes):
    target = target_of(1, holes)
    found, _ = enumerated(target, draft, [0, 2], 3, k)
    assert_same_law(found, wanted(target, [0, 2], 3))


def test_a_model_and_a_smaller_one_with_everything_that_bends():
    mild = Sampling(1.3, top_k=3, top_p=0.95, repetition_penalty=1.3)
    target, plain = Reader(small(), mild), Reader(small(), mild)
    draft = Reader(small(1, d_model=8, n_layers=1), Sampling(0.7, top_k=3))
    found, _ = enumerated(target.read, draft, [3, 1], 3, 2)
    assert_same_law(found, wanted(plain.read, [3, 1], 3))
    assert len(found) > 9


@tried
@given(
    numbers=st.lists(
        st.tuples(st.sampled_from([0, 1, 3, 1e-9]), st.sampled_from([0, 1, 2]))
        | st.tuples(st.floats(0, 1), st.floats(0, 1)),
        min_size=1,
        max_size=6,
    ).filter(lambda pairs: all(sum(side) > 1e-6 for side in zip(*pairs)))
)
def test_one_token_has_the_targets_law(numbers):
    p, q = torch.tensor(numbers, dtype=torch.float64).T
    p, q = p / p.sum(), q / q.sum()

    def one(pick):
        return verify(p[None].expand(2, -1), [q], [pick(q)], pick)[0]

    law = torch.zeros_like(p)
    for token, share in every_path(one):
        law[token] += share
    torch.testing.assert_close(law, p, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "p, q, error",
    [
        (torch.ones(2, 3), torch.ones(3), ValueError),
        (torch.ones(3), torch.ones(4), ValueError),
        (torch.ones(3), torch.ones(3).double(), TypeError),
    ],
)
def test_the_residual_refuses(p, q, error):
    with pytest.raises(error, match="expected .*; got "):
        residual(p, q)


@pytest.mark.parametrize("p", [[0.5, 0.5], [1.0], [0.2, 0.0, 0.8]])
def test_where_nothing_is_refused_the_residual_is_the_target(p):
    p = torch.tensor(p, dtype=torch.float64)
    assert torch.equal(residual(p, p.clone()), p)
    assert torch.equal(residual(p, p + 0.1), p)  # a rounding error, say


# ---- calls


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_the_formula_is_what_is_counted(draft, k):
    """Averaged over the target's texts, and nothing assumed."""
    n = 3
    text = [0, 1]
    target = target_of(1)
    _, counted = enumerated(target, draft, text, n, k)
    formula = 0.0
    for tokens, share in wanted(target, text, n).items():
        kept = []
        for place, token in enumerate(tokens):
            before = [*text, *tokens[:place]]
            q, p = draft(before), target(before, 1)[0, token].item()
            kept.append(0.0 if q is None else min(1, q[token].item() / p))
        formula += share * expected_calls(kept, k)
    assert counted == pytest.approx(formula, abs=1e-12)


@pytest.mark.parametrize("k", [-1, 1.5])
def test_a_number_of_guesses_that_cannot_be_is_refused(k):
    with pytest.raises((ValueError, TypeError), match="k is .*expected"):
        expected_calls([0.5], k)


# ---- models


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("k", [0, 1, 3, 9])
def test_greedy_text_is_the_same(positions, k):
    model = small(positions=positions)
    prompt = [3, 1, 4]
    (plain,) = complete(model, [prompt], 20)
    greedy = Sampling()
    drafts = {
        "itself": Reader(model, greedy),
        "itself, drawn": Reader(model, Sampling(temperature=1.0)),
        "another": Reader(small(1, positions=positions), greedy),
        "look-up": look_up_draft(7),
    }
    for name, draft in drafts.items():
        rounds = write(model, prompt, 20, draft, k, sampling=greedy, seed=1)
        assert sum(rounds, []) == plain, name
        assert all(1 <= len(new) <= k + 1 for new in rounds)
        if name == "itself":
            assert len(rounds) == math.ceil(20 / (k + 1))


def test_stop_ends_the_text_and_nothing_comes_behind_it():
    model = small()
    (plain,) = complete(model, [[3, 1, 4]], 20)
    options = {"sampling": Sampling()}
    # Two in one call, of which the first counts; and each by itself.
    for stops in (plain[6:8], *([token] for token in set(plain))):
        end = min(map(plain.index, stops)) + 1
        draft = Reader(model, Sampling())
        rounds = write(model, [3, 1, 4], 20, draft, 4, stop=stops, **options)
        assert sum(rounds, []) == plain[:end]


def test_what_is_read_is_what_is_new():
    model = small()
    reader = Reader(small())
    texts = [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 6, 6], [1, 2], [5], [5, 0, 1]]
    read = []
    for text in texts:
        before = reader.n_read
        found = reader(text)
        read.append(reader.n_read - before)
        alone = model(torch.tensor([text]))[0, -1].softmax(-1)
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)
        assert reader.cache.lengths == [len(text)]
    assert read == [3, 2, 2, 1, 1, 2]


def test_several_beginnings_at_once_each_with_its_own_penalty():
    sampling = Sampling(temperature=1.0, repetition_penalty=2.0)
    model = small()
    text = [1, 2, 3, 4, 5, 6]
    with torch.no_grad():
        z = model(torch.tensor([text]))[0]
    whole = sampling.bend(z, [text[:n] for n in range(1, 7)]).softmax(-1)
    reader = Reader(model, sampling)
    reader([1, 2, 3, 0])
    for n in (4, 5):  # the second time known, and read again for its logits
        found = reader.read(text, n)
        torch.testing.assert_close(found, whole[-n:], rtol=0, atol=1e-12)


def test_the_target_reads_each_token_once_and_the_refused_ones():
    model = small()
    text = [3, 1, 4, 1]
    reader = Reader(model)
    draft = DRAFTS_OF_SEVEN
    pick = picker(np.random.default_rng(0))
    rounds = list(guess_ahead(reader.read, draft, text, 21, 3, pick))
    guessed = []
    left = 21
    for new in rounds:
        guessed.append(min(3, left - 1))
        left -= len(new)
    assert left == 0
    assert len({len(new) for new in rounds}) > 2
    # The prompt once, each call's guesses, and the last token of the one
    # before: what was kept is not read again.
    assert reader.n_read == len(text) + sum(guessed) + len(rounds) - 1


def DRAFTS_OF_SEVEN(text):
    return torch.full((7,), 1 / 7, dtype=torch.float64)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_text_longer_than_the_context_is_the_same(positions):
    """The guesses of one call may be read through two windows."""
    model = small(positions=positions, context=8)
    drafts = look_up_draft(7), Reader(model, Sampling())
    for draft in drafts:
        rounds = write(model, [1], 30, draft, 4, sampling=Sampling())
        assert sum(rounds, []) == complete(model, [[1]], 30)[0]
    assert max(map(len, rounds)) == 5  # the model guesses for itself


def test_the_cache_grows_with_the_text(monkeypatch):
    monkeypatch.setattr(attnbook.speculative, "ROOM", 2)
    model = small(context=64)
    reader = Reader(model, Sampling())
    assert reader.cache.capacity == 2
    rounds = write(model, [1], 50, reader, 3, sampling=Sampling())
    assert sum(rounds, []) == complete(model, [[1]], 50)[0]
    assert 50 <= reader.cache.capacity <= 64


def test_a_seed_gives_the_same_and_another_others():
    model = small()
    draft = look_up_draft(7)
    texts = [write(model, [1], 15, draft, 3, seed=s) for s in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "prompt, n, k, options, named",
    [
        ([], 3, 2, {}, "the prompt has no tokens"),
        ([7], 3, 2, {}, "token 0 of the prompt is"),
        ([-1], 3, 2, {}, "token 0 of the prompt is"),
        ([1.0], 3, 2, {}, "token 0 of the prompt is"),
        ([1], 3, 2, {"stop": [7]}, "token 0 of stop is"),
        ([1], 0, 2, {}, "n is"),
        ([1], 3, -1, {}, "k is"),
        ([1], 3, 2, {"seed": -1}, "seed"),
    ],
)
def test_write_refuses(prompt, n, k, options, named):
    with pytest.raises((ValueError, TypeError), match=f"{named}.*expected"):
        write(small(), prompt, n, DRAFTS_OF_SEVEN, k, **options)


def test_nan_is_refused():
    model = copy.deepcopy(small())
    with torch.no_grad():
        model.norm.bias[0] = math.nan
    with pytest.raises(
        ValueError, match="logits are NaN.*; expected .*; got nan"
    ):
        Reader(model)([1])


# ---- drafts


def test_the_longest_is_looked_up_first():
    draft = look_up_draft(9, sizes=(2, 1))
    text = [1, 2, 3, 8, 2, 4, 1, 2]
    assert draft(text).tolist() == np.eye(9)[3].tolist()
    assert draft([7, 2, 4, 1, 2]).tolist() == np.eye(9)[4].tolist()
    assert draft([1, 2, 3]) is None
    text = [1, 2, 3, 4, 2, 3, 5, 3, 6]  # by three, two and one if not told
    for last, found in (([1, 2, 3], 4), ([2, 3], 5), ([3], 6)):
        assert look_up_draft(9)([*text, 0, *last]).argmax() == found


# ---- within the server


def scripted(texts):
    """A draft that has seen how the texts go on, and errs now and then."""

    def draft(text):
        for whole in texts:
            if text == whole[: len(text)] and len(text) < len(whole):
                wrong = sum(text) % 4 == 0
                return torch.eye(7)[(whole[len(text)] + wrong) % 7]
        return None

    return draft


@settings(deadline=None, derandomize=True, max_examples=40)
@given(data=st.data())
def test_served_with_guesses_is_alone_without(data):
    """For any schedule, drafts good and bad, greedy and drawn."""
    choose = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    model = small(positions=choose("rotary", "learned", "alibi"))
    mild = Sampling(temperature=1.2, top_k=5, repetition_penalty=1.3)
    specs = []
    for _ in range(choose(1, 2, 4)):
        prompt = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
        options = dict(
            sampling=choose(Sampling(), Sampling(repetition_penalty=3), mild),
            stop=choose((), (2,)),
            seed=choose(0, 1, 2),
        )
        specs.append((prompt, choose(1, 5, 11), options))
    alone = [
        complete(model, [prompt], n, **options)[0]
        for prompt, n, options in specs
    ]
    texts = [prompt + text for (prompt, *_), text in zip(specs, alone)]
    size = choose(1, 2, 5, 16)
    most = max(len(prompt) + n - 1 for prompt, n, _ in specs)
    draft = choose(
        scripted(texts), look_up_draft(7), lambda text: torch.eye(7)[text[-1]]
    )
    server = Server(
        model,
        n_pages=-(-most // size) + choose(0, 1, 20),
        page_size=size,
        budget=choose(1, 4, 64),
        guess=likeliest(draft, choose(1, 3, 6)),
        accept=as_alone,
    )
    asked = [server.submit(p, n, **options) for p, n, options in specs]
    server.run()
    assert [request.error for request in asked] == [None] * len(asked)
    assert [request.written for request in asked] == alone


def test_the_server_takes_fewer_steps_with_good_guesses():
    model = small()
    prompt = [3, 1, 4]
    text = prompt + complete(model, [prompt], 12)[0]
    good = lambda t: torch.eye(7)[text[len(t)]] if len(t) < 15 else None  # noqa: E731
    steps = []
    for draft, k in ((good, 3), (lambda text: None, 3), (good, 0)):
        server = Server(
            model, n_pages=9, guess=likeliest(draft, k), accept=as_alone
        )
        request = server.submit(prompt, 12)
        n = 0
        while not request.ended:
            server.step()
            n += 1
        assert request.tokens == text
        steps.append(n)
    # The prompt gives one token; then four a step, and what is left.
    assert steps == [4, 12, 12]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_guesses_near_the_end_of_a_context_stop_nobody(positions, k):
    """A draft is not asked about more than a text can become."""
    model = small(positions=positions, context=16)
    prompts = [[1, 2, 3, 4, 5, 6, 1, 2, 3, 4], [5, 6]]
    asked_about = []
    reader = Reader(model, Sampling())

    def draft(text):
        asked_about.append(len(text))
        return reader(text)

    server = Server(
        model,
        n_pages=20,
        page_size=4,
        guess=likeliest(draft, k),
        accept=as_alone,
    )
    asked = [server.submit(p, n) for p, n in zip(prompts, (7, 12))]
    server.run()
    for request, prompt, n in zip(asked, prompts, (7, 12)):
        assert request.state == "done" and request.guess_error is None
        assert request.written == complete(model, [prompt], n)[0]
    assert max(asked_about) <= 15


def test_a_draft_whose_context_is_shorter_than_the_models_goes_on_guessing():
    model = small()
    prompt = [3, 1, 4]
    draft = Reader(small(1, positions="learned", context=5), Sampling())
    server = Server(
        model, n_pages=9, guess=likeliest(draft, 3), accept=as_alone
    )
    request = server.submit(prompt, 20)
    server.run()
    assert request.written == complete(model, [prompt], 20)[0]
    assert request.guess_error is None


# ---- ways


def test_every_way_is_gone_once():
    halves = torch.tensor([0.5, 0.0, 0.5])

    def program(pick):
        first = pick(halves)
        return first, pick(torch.tensor([0.25, 0.75])) if first else None

    assert sorted(every_path(program), key=str) == [
        ((0, None), 0.5),
        ((2, 0), 0.125),
        ((2, 1), 0.375),
    ]


def test_a_picker_draws_by_its_numbers():
    class Numbers:
        def __init__(self, *numbers):
            self.random = iter(numbers).__next__

    pick = picker(Numbers(0.1, 0.6, 0.99))
    p = torch.tensor([0.2, 0.5, 0.3])
    assert [pick(p) for _ in range(3)] == [0, 1, 2]
