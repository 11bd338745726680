"""Generating text: the samplers against transformers', rows against texts
written alone, and what a step costs."""

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
import torch
from models import random_model
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import attnbook.generate
from attnbook.generate import (
    ROOM,
    Sampling,
    complete,
    draw,
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
)
from attnbook.gpt import POSITIONS, GPTConfig
from attnbook.teach.check.seeded import randn

SMALL = GPTConfig(vocab_size=12, context=24, d_model=16, n_heads=4, n_layers=2)
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5], [0, 0, 7, 0]]
STOP = [2, 8]
#: Every option at once, mild enough that all of them matter.
ALL = Sampling(
    temperature=1.3, top_k=9, top_p=0.9, min_p=0.05, repetition_penalty=1.2
)


def small(**changes):
    return random_model(dataclasses.replace(SMALL, **changes))


def passes_of(model):
    """The shapes of the tokens of every forward pass from now on."""
    shapes = []
    model.register_forward_pre_hook(
        lambda model, inputs: shapes.append(tuple(inputs[0].shape))
    )
    return shapes


# ---- the samplers


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_order_is_theirs(temperature):
    z = 3 * randn(20, 30, seed=1)
    texts = torch.arange(20)[:, None]
    options = dict(top_k=12, top_p=0.8, min_p=0.15, repetition_penalty=1.5)
    theirs = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.5),
            TemperatureLogitsWarper(temperature),
            TopKLogitsWarper(12),
            TopPLogitsWarper(0.8),
            MinPLogitsWarper(0.15),
        ]
    )
    ours = Sampling(temperature=temperature, **options)
    assert torch.equal(ours.bend(z, texts.tolist()), theirs(texts, z))


def test_top_p_keeps_the_first_of_equal_ones():
    z = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    out = -math.inf
    assert keep_top_p(z, 0.5).tolist() == [[out, 1, 1, out]]
    assert keep_top_p(z, 0.1).tolist() == [[out, 1, out, out]]


def test_the_token_that_reaches_p_exactly_is_the_last_that_stays():
    z = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    kept = [keep_top_p(z, p).isfinite().sum().item() for p in (0.5, 0.75, 0.8)]
    assert kept == [1, 2, 3]


def test_the_likeliest_always_stays():
    z = torch.tensor([[0.0, 50.0, 1.0]], dtype=torch.float64)
    only = [[-math.inf, 50.0, -math.inf]]
    assert keep_top_k(z, 1).tolist() == only
    assert keep_top_p(z, 1e-9).tolist() == only
    assert keep_top_p(z, 0.0).tolist() == only
    assert keep_min_p(z, 1.0).tolist() == only


def test_temperature_0_is_greedy_and_looks_at_the_penalty_alone():
    z = torch.tensor([[1.0, 3.0, 2.9]])
    greedy = Sampling(repetition_penalty=1.5)
    for sampling, text, token in (
        (Sampling(top_k=1), [1], 1),
        (greedy, [1], 2),
        (greedy, [], 1),
    ):
        assert sampling.choose(z, [text], [None]).tolist() == [token]


# ---- drawing


def test_the_running_sum_is_in_float64():
    p = torch.tensor([[0.5, 1e-9, 0.5 - 1e-9]], dtype=torch.float64)
    chance = torch.tensor([0.5 + 5e-10], dtype=torch.float64)
    assert draw(p, chance).tolist() == [1]
    many = torch.full((1, 100_000), 1e-5)  # whose sum in float32 is not 1
    chance = torch.tensor([0.500_005], dtype=torch.float64)
    assert draw(many, chance).tolist() == [50_000]


def test_a_sum_that_is_not_1_is_no_harm():
    p = torch.tensor([[1.0, 3.0]] * 3)
    chance = torch.tensor([0.2, 0.3, 0.999])
    assert draw(p, chance).tolist() == [0, 1, 1]


# ---- writing


def by_loop(model, prompt, n, sampling, stop, rng):
    """One prompt, everything computed again for each token."""
    text = list(prompt)
    context = model.config.context
    for _ in range(n):
        window = text  # without its older half, each time it is too long
        for _ in range(len(text)):
            if len(window) > context:
                window = window[context // 2 :]
        with torch.no_grad():
            z = model(torch.tensor([window]))[:, -1]  # (1, V)
        chance = torch.from_numpy(rng.random(1))
        z = sampling.bend(z, [text])
        if sampling.temperature == 0:
            token = int(z.argmax())
        else:
            token = int(draw(z.softmax(-1), chance))
        text.append(token)
        if token in stop:
            break
    return text[len(prompt) :]


SAMPLINGS = {
    "greedy": Sampling(),
    "greedy, penalised": Sampling(repetition_penalty=1.8),
    "drawn": Sampling(temperature=1.0),
    "all options": ALL,
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_batch_is_each_text_alone(positions, sampling):
    model = small(positions=positions)
    for seed in (5, 6):
        alone = [
            by_loop(model, p, 19, sampling, STOP, np.random.default_rng(s))
            for p, s in zip(PROMPTS, np.random.SeedSequence(seed).spawn(4))
        ]
        options = {"sampling": sampling, "stop": STOP, "seed": seed}
        for cached in (True, False):
            found = complete(model, PROMPTS, 19, cached=cached, **options)
            assert found == alone


@pytest.mark.parametrize("sampling", [Sampling(), ALL], ids=["greedy", "all"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_beyond_the_context_the_model_reads_a_window(positions, sampling):
    """In a batch of which one prompt is too long from the beginning, and the
    others' windows move at other steps, each writes as it would alone."""
    model = small(positions=positions, context=8)
    prompts = [PROMPTS[0], [7], [*range(12), 3], [5] * 8]
    for stop in ([], STOP):
        alone = [
            by_loop(model, p, 17, sampling, stop, np.random.default_rng(s))
            for p, s in zip(prompts, np.random.SeedSequence(1).spawn(4))
        ]
        options = {"sampling": sampling, "stop": stop, "seed": 1}
        shapes = passes_of(model)
        for cached in (True, False):
            found = complete(model, prompts, 17, cached=cached, **options)
            assert found == alone
        assert max(T for _, T in shapes) <= 8


def test_a_window_is_read_anew_once_in_half_a_context():
    """Between the moves a step reads one token: the cache serves."""
    model = small(context=8)
    shapes = passes_of(model)
    complete(model, [[1]], 24)
    read = [T for _, T in shapes]
    assert read == [1] * 8 + 4 * [5, 1, 1, 1]
    # With a context of one token there is no half: a window of one.
    assert len(complete(small(context=1), [[1, 2]], 4)[0]) == 4


def test_a_text_goes_on_the_same_in_one_call_or_in_two():
    model = small(context=8)
    [whole] = complete(model, [[3, 1]], 30)
    [first] = complete(model, [[3, 1]], 11)
    [rest] = complete(model, [[3, 1, *first]], 19)
    assert first + rest == whole


def test_prompts_may_be_a_tensor():
    model = small()
    texts = [[1, 2, 3], [4, 5, 6]]
    assert complete(model, torch.tensor(texts), 5) == complete(model, texts, 5)


def test_a_seed_gives_the_same_and_another_others():
    model = small()
    options = {"sampling": Sampling(temperature=2.0)}
    first = complete(model, PROMPTS, 12, seed=3, **options)
    assert first == complete(model, PROMPTS, 12, seed=3, **options)
    assert first != complete(model, PROMPTS, 12, seed=40, **options)
    zero = complete(model, PROMPTS, 12, seed=0, **options)
    assert zero == complete(model, PROMPTS, 12, **options)
    # No two rows are alike, nor one seed's row another's.
    two = complete(model, [[1], [1]], 12, seed=7, **options)
    two += complete(model, [[1], [1]], 12, seed=8, **options)
    assert len(set(map(tuple, two))) == 4


def test_torchs_own_random_numbers_are_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        model = small()
    complete(model, PROMPTS, 4, sampling=ALL)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("cached", [True, False])
def test_a_row_that_has_ended_gives_none_and_costs_nothing(cached):
    model = small()
    shapes = passes_of(model)
    options = dict(sampling=ALL, stop=STOP, seed=7, cached=cached)
    steps = list(generate(model, PROMPTS, 19, **options))
    seen = shapes[:]
    most = len(steps)
    texts = complete(model, PROMPTS, 19, **options)
    lengths = [len(text) for text in texts]
    assert len(set(lengths)) > 2 and max(lengths) == most < 19  # all end
    assert [list(row) for row in zip(*steps)] == [
        text + [None] * (most - len(text)) for text in texts
    ]
    assert [rows for rows, _ in seen] == [
        sum(n > step for n in lengths) for step in range(most)
    ]
    if cached:
        assert [T for _, T in seen] == [5] + [1] * (most - 1)
    else:
        assert [T for _, T in seen] == [
            max(len(p) + step for p, n in zip(PROMPTS, lengths) if n > step)
            for step in range(most)
        ]


def test_tokens_come_as_they_are_computed():
    model = small()
    shapes = passes_of(model)
    stream = generate(model, PROMPTS, 10)
    assert len(shapes) == 0
    for n in range(1, 11):
        step = next(stream)
        assert len(step) == len(PROMPTS) and len(shapes) == n
    with pytest.raises(StopIteration):
        next(stream)
    assert len(shapes) == 10


def test_the_mode_is_not_the_callers():
    model = small()
    weight = model.token_embedding.weight
    for _ in generate(model, PROMPTS, 3):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        x = (weight * 2).sum()
        assert x.requires_grad and not x.is_inference()
    with torch.no_grad():
        for _ in generate(model, PROMPTS, 2):
            assert not torch.is_grad_enabled()


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_left(training):
    model = small().train(training)
    complete(model, PROMPTS, 2)
    assert model.training == training
    assert all(block.training == training for block in model.blocks)


# ---- errors


@pytest.mark.parametrize(
    "error, wrong",
    [
        (ValueError, {"temperature": -0.1}),
        (ValueError, {"top_k": 0}),
        (ValueError, {"top_p": 0.0}),
        (ValueError, {"top_p": 1.01}),
        (ValueError, {"min_p": -0.1}),
        (ValueError, {"min_p": 1.1}),
        (ValueError, {"repetition_penalty": 0}),
    ],
)
def test_sampling_refuses(error, wrong):
    Sampling(temperature=0, top_k=1, top_p=1, min_p=0)  # the edges
    Sampling(repetition_penalty=0.5)
    with pytest.raises(error, match=f"{[*wrong][0]} .*; expected .*; got "):
        Sampling(**wrong)


@pytest.mark.parametrize(
    "prompts, n, options, error, named",
    [
        ([], 3, {}, ValueError, "prompt"),
        ([[1], []], 3, {}, ValueError, "prompt"),
        ([[1], [2, 12]], 3, {}, ValueError, "prompt 1"),
        ([[-1]], 3, {}, ValueError, "prompt 0"),
        ([1, 2], 3, {}, TypeError, "prompt"),
        ([[1.0]], 3, {}, TypeError, "prompt 0"),
        (torch.ones(1, 2), 3, {}, TypeError, "prompt 0"),
        ([[1]], 0, {}, ValueError, "max_new_tokens"),
        ([[1]], 3, {"stop": [12]}, ValueError, "stop"),
        ([[1]], 3, {"seed": -1}, ValueError, "seed"),
    ],
)
def test_generate_refuses_at_once(prompts, n, options, error, named):
    model = small()
    shapes = passes_of(model)
    with pytest.raises(error, match=named):
        generate(model, prompts, n, **options)  # not only when asked
    assert shapes == []


def test_the_last_token_is_never_read_so_a_text_may_fill_the_context():
    """The window moves for a token more, and not before."""
    for n, moved in ((5, False), (6, True)):
        model = small()
        shapes = passes_of(model)
        assert len(complete(model, [[1] * 20], n)[0]) == n
        assert [T > 1 for _, T in shapes] == [True, *[False] * 4, moved][:n]


def test_a_model_with_its_dropout_on_is_refused():
    model = small(dropout=0.5).train()
    with pytest.raises(ValueError, match=r"training mode.*model.eval\(\)"):
        generate(model, [[1]], 3)
    complete(model.eval(), [[1]], 3)


def test_a_cache_grows_with_the_text():
    """Ten to the eight tokens are asked for, and three are written."""
    model = small(positions="rotary", context=2**40)
    made = []
    new_cache = model.new_cache
    model.new_cache = lambda *sizes: made.append(new_cache(*sizes)) or made[0]
    stream = generate(model, PROMPTS, 10**8, seed=1)
    assert len([next(stream) for _ in range(3)]) == 3
    assert made[0].capacity == 5 + ROOM
    with mock.patch.object(attnbook.generate, "ROOM", 2):
        options = {"sampling": ALL, "stop": STOP, "seed": 5}
        expected = complete(model, PROMPTS, 19, cached=False, **options)
        made.clear()
        assert complete(model, PROMPTS, 19, **options) == expected
    assert 7 < made[0].capacity <= 5 + 19 - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_top_p_does_not_round_tokens_away(dtype):
    """A running sum in a short type reaches p too early."""
    z = (3 * randn(2, 50_257, seed=6)).to(dtype)
    assert keep_top_p(z, 1.0).isfinite().all()
    for p in (0.9, 0.9999):
        exact = keep_top_p(z.double(), p).isfinite()
        assert torch.equal(keep_top_p(z, p).isfinite(), exact)
    z = torch.tensor([[0.0, -50.0]], dtype=torch.float64)
    assert keep_top_p(z, 1.0).isfinite().all()


def test_a_low_temperature_in_half_precision_stays_in_the_vocabulary():
    logits = torch.tensor([[-130.0, -70.0, -90.0]], dtype=torch.float16)
    for temperature in (1e-3, 1e-40):
        sampling = Sampling(temperature=temperature)
        chances = [mock.Mock(random=lambda: 0.999)]
        assert sampling.choose(logits, [[]], chances).tolist() == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_gives_nan_writes_nothing(temperature):
    sampling = Sampling(temperature=temperature)
    for tied, where in ((True, "2 of row 0"), (False, "1 of row 1")):
        model = small(tied=tied)
        with torch.no_grad():
            model.token_embedding.weight[3] = torch.nan
        with pytest.raises(ValueError, match=f"NaN after token {where}"):
            next(generate(model, [[1, 2], [3]], 4, sampling=sampling))
