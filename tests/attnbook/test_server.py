"""The server: every request against the same request alone, over random
schedules, and what holds of its pages after every step."""

import asyncio
import copy
import dataclasses
import functools
import itertools
import random
from collections import Counter

import pytest
import torch
from models import random_model
from torch import nn

import attnbook.pages
import attnbook.server
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.pages import page_names
from attnbook.server import Server, sample

SMALL = GPTConfig(
    vocab_size=12, context=32, d_model=12, n_heads=2, n_layers=2, d_ff=16
)
KINDS = ("alibi", "rotary", "learned")
GREEDY = Sampling()
DRAWN = Sampling(temperature=1.3, top_k=9, repetition_penalty=1.2)


@functools.cache
def small(positions="rotary", dtype=torch.float64):
    changes = dict(positions=positions, n_kv_heads=1)
    return random_model(dataclasses.replace(SMALL, **changes), dtype=dtype)


@functools.cache
def alone(positions, prompt, n, sampling=GREEDY, stop=(), seed=0):
    """What the library writes for a prompt by itself."""
    options = dict(sampling=sampling, stop=stop, seed=seed)
    return complete(small(positions), [prompt], n, **options)[0]


def logits_alone(model, tokens, n_prompt):
    """The logits before each token behind the prompt, by one full pass."""
    with torch.inference_mode():
        return model(torch.tensor([tokens[:-1]]))[0, n_prompt - 1 :]


def check_pages(server):
    """Every page is in as many tables as it counts, or free; none is lost."""
    pages = server.pages
    size = server.pages.size
    held = Counter(p for request in server.open for p in request.table)
    assert pages.holders == [held[p] for p in range(len(pages.holders))]
    assert set(pages.free) == {p for p, n in enumerate(pages.holders) if not n}
    assert pages.page_of == {name: p for p, name in pages.name_of.items()}
    for request in server.open:
        waste = len(request.table) * size - request.n_kept
        assert waste == -request.n_kept % size < size
        # What can be found by a name is what the name says.
        names = page_names(request.tokens[: request.n_kept], size)
        for name, page in zip(names, request.table):
            assert pages.name_of.get(page, name) == name


class Schedule:
    """A random schedule from a seed: who comes and goes, and what of it."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.positions = rng.choice(KINDS)
        self.model = small(self.positions)
        self.size = rng.randint(1, 16)
        self.prompts = []
        self.specs = [self.spec() for _ in range(rng.randint(1, 4))]
        most = max(len(prompt) + n - 1 for prompt, n, *_ in self.specs)
        self.server = Server(
            self.model,
            n_pages=-(-most // self.size) + rng.choice([0, 0, 1, 2, 5, 40]),
            page_size=self.size,
            budget=rng.choice([1, 2, 3, 5, 8, 20, 100]),
            guess=self.guess if rng.random() < 0.5 else lambda request: [],
            accept=self.accept,
        )
        self.asked = {}
        self.seen = {}
        self.guessed = 0

    def spec(self):
        """A prompt, often one that begins as another, and its options."""
        rng = self.rng
        new = tuple(rng.randrange(12) for _ in range(rng.randint(1, 9)))
        if self.prompts and rng.random() < 0.5:
            old = rng.choice(self.prompts)
            new = old[: rng.randint(1, len(old))] + new * rng.randint(0, 1)
        self.prompts.append(new := new[:18])
        sampling = rng.choice([GREEDY, GREEDY, DRAWN])
        stop = rng.choice([(), (), (7, 3)])
        return new, rng.randint(1, 7), sampling, stop, rng.randrange(3)

    def guess(self, request):
        """Words to come, some of them wrong; none for one that draws."""
        if request.sampling.temperature:
            return []
        prompt, n, *options = self.asked[request]
        rest = alone(self.positions, prompt, n, *options)
        rest = rest[len(request.tokens) - len(prompt) :]
        right = rest[: self.rng.randint(0, 3)]
        return right + [self.rng.randrange(12)] * self.rng.randint(0, 2)

    def accept(self, request, guesses, logits):
        """As many guesses as are the likeliest token, and then that."""
        seen = self.seen.setdefault(request, [])
        new = sample(request, guesses, logits)
        for n, guess in enumerate(guesses, 1):
            if new[-1] != guess:
                break
            new += logits[n : n + 1].argmax(-1).tolist()
            self.guessed += 1
        seen.append(logits[: len(new)])
        return new

    def run(self):
        rng = self.rng
        server = self.server
        came = list(self.specs)
        forks = 0
        for _ in range(1000):
            while came and rng.random() < 0.5:
                prompt, n, sampling, stop, seed = spec = came.pop()
                options = dict(sampling=sampling, stop=stop, seed=seed)
                self.asked[server.submit(prompt, n, **options)] = spec
            running = [one for one in server.open if one.state == "running"]
            if server.open and rng.random() < 0.02:
                server.cancel(rng.choice(server.open))
            elif running and rng.random() < 0.05:
                old = rng.choice(running)
                n = old.end - len(old.tokens)
                seed = rng.randrange(9)
                stop = tuple(old.stop)
                spec = tuple(old.tokens), n, old.sampling, stop, seed
                self.asked[server.fork(old, seed=seed)] = spec
                forks += 1
            check_pages(server)
            server.step()
            check_pages(server)
            if not (came or server.open):
                break
        else:
            pytest.fail("the server does not come to an end")
        assert len(server.pages.free) == len(server.pages.holders)
        return Counter(
            forks=forks,
            guessed=self.guessed,
            n_found=sum(request.n_found > 0 for request in self.asked),
            n_preempted=sum(r.n_preempted > 0 for r in self.asked),
            **Counter(request.state for request in self.asked),
        )

    def compare(self):
        for request, (prompt, n, *options) in self.asked.items():
            expected = alone(self.positions, prompt, n, *options)
            if request.state == "cancelled":
                assert request.written == expected[: len(request.written)]
            else:
                assert request.state == "done", request.error
                assert request.written == expected
            if request in self.seen and len(request.tokens) > len(prompt):
                tokens = request.tokens
                wanted = logits_alone(self.model, tokens, len(prompt))
                found = torch.cat(self.seen[request])[: len(wanted)]
                torch.testing.assert_close(found, wanted, atol=1e-11, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_served_is_alone(part):
    happened = Counter()
    for seed in range(50 * part, 50 * part + 50):
        schedule = Schedule(seed)
        happened += schedule.run()
        schedule.compare()
    # All of it happened, and often.
    assert happened["done"] > 80
    names = ("n_found", "n_preempted", "forks", "guessed", "cancelled")
    assert min(happened[name] for name in names) >= 2, happened


# ---- what a hit, a copy and a preemption are, one by one


def server_of(model=None, **options):
    options = {"n_pages": 9, "page_size": 2} | options
    return Server(model or small(), **options)


def served(server, prompt, n=3, **options):
    request = server.submit(prompt, n, **options)
    server.run()
    assert request.state == "done", request.error
    return request


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_whole_prompt_that_is_kept_is_read_from_its_last_page(size):
    """The last token is read in any case, so its page is not shared."""
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    server = server_of(n_pages=20, page_size=size)
    first, again = served(server, prompt), served(server, prompt)
    assert (first.n_found, again.n_found) == (0, 8 - size)
    longer = served(server, [*prompt, 7])
    assert longer.n_found == 8
    # What was written is found again as what was read.
    assert served(server, first.tokens).n_found == 10 // size * size
    assert again.written == first.written


def test_the_same_tokens_behind_another_beginning_are_not_found():
    server = server_of()
    served(server, [1, 2, 3, 4, 5])
    other = served(server, [9, 9, 3, 4, 5])
    assert other.n_found == 0
    assert other.written == alone("rotary", (9, 9, 3, 4, 5), 3)


def test_a_shared_page_is_copied_before_it_is_written():
    server = server_of(n_pages=9, page_size=4)
    first = server.submit([3, 1, 4, 1, 5, 9], 6)
    server.step()
    other = server.fork(first, seed=3)
    assert other.table == first.table and other.table is not first.table
    kept = server.pages.memory[:, :, first.table].clone()
    server.step()
    a, b = first.table, other.table
    assert a[0] == b[0] and a[1] != b[1]
    assert server.pages.holders[a[0]] == 2
    for table in (a, b):  # the six tokens of before, in both
        now = server.pages.memory[:, :, table].flatten(2, 3)[:, :, :6]
        assert torch.equal(now, kept.flatten(2, 3)[:, :, :6])
    server.run()
    assert first.written == alone("rotary", (3, 1, 4, 1, 5, 9), 6)
    assert other.written == first.written[1:]
    with pytest.raises(ValueError, match="expected running; got 'done'"):
        server.fork(first, seed=0)


def test_who_waits_for_pages_has_not_lost_any():
    server = server_of(n_pages=3, page_size=4)
    first, second = server.submit([1] * 8, 4), server.submit([2] * 8, 4)
    for _ in range(3):
        server.step()
        assert (second.state, second.n_preempted) == ("waiting", 0)
    server.run()
    assert (first.n_preempted, second.n_preempted) == (0, 0)


def test_the_first_comes_first_and_the_last_loses_its_pages():
    server = server_of(n_pages=6, page_size=1)
    asked = [server.submit([n, n + 1], 5) for n in range(3)]
    while server.open:
        server.step()
        states = [request.state for request in asked]
        assert states == sorted(
            states, key=["done", "running", "waiting"].index
        )
    assert [request.n_preempted for request in asked][0] == 0
    assert sum(request.n_preempted for request in asked) >= 1


# ---- what fails, fails alone


@pytest.mark.parametrize(
    "prompt, n, options, message",
    [
        ([], 1, {}, "the prompt has no tokens.*got an empty list"),
        ([1, 12], 1, {}, "token 1 of the prompt.*below 12; got 12"),
        ([-1], 1, {}, "token 0 of the prompt.*at least 0.*got -1"),
        ([1.5], 1, {}, "the prompt.*whole number.*got 1.5"),
        ([1], 0, {}, "max_new_tokens.*at least 1; got 0"),
        ([1] * 30, 4, {}, "length would be 33.*at most 32, the model's cont"),
        ([1] * 26, 4, {}, "room for 29.*at most 28, which is what 7 pages of"),
        ([1], 1, {"stop": [12]}, "token 0 of stop.*below 12; got 12"),
        ([1], 1, {"seed": -1}, "seed.*at least 0.*got -1"),
    ],
)
def test_what_cannot_be_served_is_refused_and_the_others_go_on(
    prompt, n, options, message
):
    server = Server(small("learned"), n_pages=7, page_size=4)
    good = server.submit([3, 1, 4], 4)
    with pytest.raises((TypeError, ValueError), match=message):
        server.submit(prompt, n, **options)
    assert server.open == [good]
    server.submit([1] * 25, 4)  # exactly full
    server.run()
    assert good.written == alone("learned", (3, 1, 4), 4)


def test_a_server_needs_room_and_a_model_without_dropout():
    for wrong in ({"n_pages": 0}, {"page_size": 0}, {"budget": 0}):
        with pytest.raises(ValueError, match=f"{[*wrong][0]} .*got 0"):
            server_of(**{"n_pages": 3, **wrong})
    noisy = GPT(dataclasses.replace(SMALL, dropout=0.1))
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        Server(noisy, n_pages=3).submit([1], 1)


def test_nan_is_one_requests_own_also_on_the_pages_it_leaves():
    model = copy.deepcopy(small())
    prompts = [[3, 1, 4, 1, 5], [2, 7, 1], [9, 9, 9, 9]]
    expected = [complete(model, [p], 6)[0] for p in prompts]
    (bad_token, *_) = {*range(12)} - {*itertools.chain(*prompts, *expected)}
    model.token_embedding = nn.Embedding.from_pretrained(
        model.token_embedding.weight.clone()
    )
    model.head = nn.Linear(12, 12, bias=False).double()
    model.head.weight = small().token_embedding.weight
    model.token_embedding.weight[bad_token] = torch.nan
    server = Server(model, n_pages=7, page_size=2)
    asked = [server.submit(prompts[0], 6), server.submit([1, bad_token, 2], 6)]
    asked += [server.submit(prompt, 6) for prompt in prompts[1:]]
    server.run()
    bad = asked.pop(1)
    assert bad.state == "failed" and "NaN" in str(bad.error)
    assert [request.written for request in asked] == expected


def test_after_a_step_that_failed_all_go_on(monkeypatch):
    server = server_of(budget=4)
    asked = [server.submit(p, 5, sampling=DRAWN) for p in ([1, 2, 3], [4, 5])]
    server.step()
    forward = nn.Linear.forward
    calls = iter(range(99))

    def breaks(self, x):
        if next(calls) == 5:
            raise RuntimeError("out of memory")
        return forward(self, x)

    monkeypatch.setattr(nn.Linear, "forward", breaks)
    with pytest.raises(RuntimeError, match="out of memory"):
        server.step()
    monkeypatch.undo()
    check_pages(server)
    server.run()
    for request, prompt in zip(asked, [(1, 2, 3), (4, 5)]):
        assert request.written == alone("rotary", prompt, 5, DRAWN)


@pytest.mark.parametrize("new", [[], [4, 5], [7, 8, 9, 1]])
def test_what_is_accepted_begins_with_the_guesses(new):
    def accept(request, guesses, logits):
        return new

    server = server_of(guess=lambda request: [7, 8], accept=accept)
    request = server.submit([1], 9)
    server.run()
    assert request.state == "failed"
    assert "the first few of [" in str(request.error)


@pytest.mark.parametrize(
    "guesses", [ValueError("no luck"), [7, 12], [-1], ["7"], None]
)
def test_a_guess_that_fails_is_no_guess(guesses):
    """One that raises, tokens that there are not, and what is no list."""

    def guess(request):
        if request.tokens[0] == 9:
            if isinstance(guesses, Exception):
                raise guesses
            return guesses
        return [7, 8]

    server = server_of(n_pages=40, guess=guess)
    asked = [server.submit(prompt, 6) for prompt in ([9, 2], [3, 1, 4])]
    server.run()
    for request, prompt in zip(asked, [(9, 2), (3, 1, 4)]):
        assert request.state == "done", request.error
        assert request.written == alone("rotary", prompt, 6)
    assert isinstance(asked[0].guess_error, (ValueError, TypeError))
    assert asked[1].guess_error is None and asked[0].error is None


def test_a_text_that_may_leave_the_context_is_refused_for_all_positions():
    """`complete` goes on behind the context with a window; a server's pages
    hold whole texts."""
    for positions in KINDS:
        server = server_of(small(positions), n_pages=90)
        with pytest.raises(ValueError, match="at most 32, the model's"):
            server.submit([1] * 16, 18)
        assert len(served(server, [1] * 16, 17).tokens) == 33


@pytest.fixture
def sizes(monkeypatch):
    """How many tokens of each part a step reads, step by step."""
    read = attnbook.server.read_parts
    found = []

    def counted(model, pages, parts, exact):
        found.append([len(part.tokens) for part in parts])
        return read(model, pages, parts, exact)

    monkeypatch.setattr(attnbook.server, "read_parts", counted)
    return found


def test_a_step_reads_no_more_than_its_budget(sizes):
    server = server_of(n_pages=40, page_size=4, budget=4)
    for prompt in ([1, 2], [3] * 7, [5, 6]):
        server.submit(prompt, 3)
    server.run()
    # Two and a chunk; then one that writes, and the next chunk; …
    assert sizes[:3] == [[2, 2], [1, 3], [1, 2, 1]]
    assert max(map(sum, sizes)) == 4


def test_what_was_guessed_right_is_not_read_again(sizes):
    rest = alone("rotary", (3, 1, 4), 9)
    server = server_of(
        guess=lambda request: rest[len(request.written) :][:3],
        accept=lambda request, guesses, logits: logits.argmax(-1).tolist(),
    )
    # A token, then three guesses and one more, twice; the last is not read.
    assert served(server, [3, 1, 4], 9).written == rest
    assert sizes == [[3], [4], [4]]


def test_a_guess_that_stops_ends_the_text_there():
    server = server_of(
        guess=lambda request: (7, 8, 9),  # any sequence
        accept=lambda request, guesses, logits: [*guesses, 5],
    )
    stop = [8]
    ended, full = (server.submit([1, 2], 7, stop=s) for s in (stop, []))
    stop.clear()  # the request has its own
    server.run()
    # The first token is written before anything can be guessed.
    assert ended.written[-2:] == [7, 8] and len(ended.written) <= 3
    assert len(full.written) == 7
    assert len(server.pages.free) == 9


def test_cancelled_a_request_gives_its_pages_back():
    server = server_of(n_pages=4, page_size=2)
    a, b = server.submit([1, 2, 3], 5), server.submit([4] * 6, 2)
    assert b.n_found == 0
    server.step()
    assert (a.state, b.state) == ("running", "waiting")
    server.cancel(b)
    server.cancel(a)
    assert len(server.pages.free) == 4
    assert not server.open
    assert a.written == alone("rotary", (1, 2, 3), 5)[:1]
    done = served(server, [1, 2, 3])
    server.cancel(done)
    assert done.state == "done"


# ---- to the bit


def exact_logits(prompt, company=(), model=None, **options):
    """The logits of a request, as they came, in this company."""
    found = []

    def keep(request, guesses, logits):
        if request is mine:
            found.append(logits)
        return sample(request, guesses, logits)

    model = model or small("alibi", torch.float32)
    options = {"n_pages": 60, "page_size": 3, "exact": True, **options}
    server = Server(model, accept=keep, **options)
    for other in company[::2]:
        server.submit(other, 9)
        server.step()
    mine = server.submit(prompt, 8)
    for other in company[1::2]:
        server.submit(other, 9)
    server.run()
    return torch.cat(found)


@pytest.mark.parametrize("positions", KINDS)
def test_exact_is_the_same_to_the_bit_in_any_company(positions):
    model = small(positions, torch.float32)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    company = [[1, 2], [3, 1, 4, 1, 5, 9, 7], [8] * 13, [3, 1, 4, 1], [0]]
    bits = functools.partial(exact_logits, prompt, model=model)
    wanted = bits()
    for options in (
        {"company": company},
        {"company": company, "budget": 2},
        {"company": company, "budget": 7, "page_size": 16},
        {"company": company, "n_pages": 7},
        {"budget": 1, "page_size": 1},
    ):
        assert torch.equal(bits(**options), wanted), options
    with torch.inference_mode():
        tokens = prompt + wanted.argmax(-1).tolist()
    full = logits_alone(model, tokens, len(prompt))
    torch.testing.assert_close(wanted, full, atol=1e-4, rtol=0)


@pytest.mark.parametrize("exact, products, readers", [(0, 1, 3), (1, 6, 6)])
def test_only_to_the_bit_is_each_token_by_itself(
    exact, products, readers, monkeypatch
):
    server = server_of(n_pages=40, page_size=4, exact=bool(exact))
    for prompt in ([1, 2], [3] * 3, [5]):
        server.submit(prompt, 3)
    seen = Counter()
    attend = attnbook.pages.attend

    def counted(*inputs, **options):
        seen["readers"] += 1
        return attend(*inputs, **options)

    monkeypatch.setattr(attnbook.pages, "attend", counted)
    layer = server.model.blocks[0].feed_forward
    count = layer.register_forward_hook(lambda *_: seen.update(["products"]))
    with count:  # and off again
        server.step()
    n_layers = len(server.model.blocks)
    assert seen == {"products": products, "readers": readers * n_layers}


# ---- its face


def test_streams_give_what_each_would_write_alone():
    prompts = [(3, 1, 4), (1, 5), (9, 2, 6, 5)]
    server = server_of(n_pages=6, page_size=2)

    async def reader(prompt):
        return [token async for token in server.stream(prompt, 5)]

    async def all_of_them():
        return await asyncio.gather(*map(reader, prompts))

    written = asyncio.run(all_of_them())
    assert written == [alone("rotary", prompt, 5) for prompt in prompts]


def test_a_reader_who_leaves_cancels_and_an_error_reaches_its_reader():
    def accept(request, guesses, logits):
        if request.tokens[0] == 9:
            raise RuntimeError("no luck")
        return sample(request, guesses, logits)

    server = server_of(accept=accept)

    async def story():
        stream = server.stream([3, 1, 4], 9)
        first = await anext(stream)
        (request,) = server.open
        with pytest.raises(RuntimeError, match="no luck"):
            await anext(server.stream([9], 2))
        assert request.state == "running"
        await stream.aclose()
        return first, request

    first, request = asyncio.run(story())
    assert [first] == alone("rotary", (3, 1, 4), 9)[:1]
    assert request.state == "cancelled"
    assert len(server.pages.free) == 9
