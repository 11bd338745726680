"""Chapter 14, the KV cache: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F

from attnbook.gpt import GPT, GPTConfig
from attnbook.masks import causal_mask
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import drawn, f64, ints, marks, randns
from attnbook.teach.check.running import call

task = tasks_of(14)

_MATRICES = randns((3, 2), (3, 2), (3, 4), seed=1)
_X, _KEYS, _VALUES = randns((3, 3), (5, 2), (5, 4), seed=4)


@task(
    against="a loop over tokens",
    cases={
        "a token after one": (_X[:1], _KEYS[:1], _VALUES[:1], *_MATRICES),
        "a token after five": (_X[1:2], _KEYS, _VALUES, *_MATRICES),
        "three tokens after two": (_X, _KEYS[:2], _VALUES[:2], *_MATRICES),
        "an empty cache": (_X, _KEYS[:0], _VALUES[:0], *_MATRICES),
        # A key is minus a query: the scores lie below −10⁹.
        "two tokens after one, scores far below 0": (
            f64([2**16], [2**17]),
            f64([-(2**18)]),
            f64([3]),
            f64([1]),
            f64([-1]),
            f64([2**-16]),
        ),
        "a token after 300": (
            *randns((1, 3), (300, 2), (300, 4), seed=31),
            *_MATRICES,
        ),
        "131 tokens after two, 130 wide": randns(
            (131, 130),
            (2, 131),
            (2, 132),
            (130, 131),
            (130, 131),
            (130, 132),
            seed=41,
        ),
        "128 tokens after 128": (
            *randns((128, 3), (128, 2), (128, 4), seed=51),
            *_MATRICES,
        ),
    },
)
def decode_step(x, keys, values, w_query, w_key, w_value):
    """the context of each new token, with all keys and all values, the new
    ones behind the cached"""
    context = []
    for token in x:
        keys = torch.cat([keys, (token @ w_key)[None]])
        values = torch.cat([values, (token @ w_value)[None]])
        scores = keys @ (token @ w_query) / math.sqrt(keys.shape[-1])
        context.append(scores.softmax(0) @ values)
    return torch.stack(context), keys, values


@decode_step.mistake(
    "pytorch/pytorch #144858, #103082, "
    "time-series-foundation-models/lag-llama #81",
    symptom=(
        symptoms.SEES_WRONG_TOKENS,
        symptoms.LATER_TOKENS_WRONG,
        symptoms.BAD_TEXT,
    ),
)
def sees_the_first_key_only(x, keys, values, w_query, w_key, w_value):
    """No error; a new token gets the first token's value for its context,
    whatever stands in between, and the text turns into nonsense.
    cause: is_causal=True takes the queries for the first ones of the keys. A
    single query is then the first of all, and sees key 0 alone.
    fix: Leave is_causal out for a single query, and give several queries the
    last rows of the causal mask."""
    keys = torch.cat([keys, x @ w_key])
    values = torch.cat([values, x @ w_value])
    context = F.scaled_dot_product_attention(
        (x @ w_query)[None], keys[None], values[None], is_causal=True
    )[0]
    return context, keys, values


@decode_step.mistake(
    "ipolharvard/ethos-ares #20", symptom=symptoms.DIFFERS_EACH_TIME
)
def decodes_with_dropout(x, keys, values, w_query, w_key, w_value):
    """Two runs on one input differ, and both differ from the full pass; with a
    small dropout the text still looks sensible.
    cause: Dropout is left on. Gradients switched off is not the same: no_grad
    and inference_mode leave it as it was.
    fix: Call model.eval() before anything is written or compared."""
    keys = torch.cat([keys, x @ w_key])
    values = torch.cat([values, x @ w_value])
    scores = x @ w_query @ keys.mT / math.sqrt(keys.shape[-1])
    mask = causal_mask(len(x), len(keys)).to(x.device)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        weights = F.dropout(weights, 0.3)
    return weights @ values, keys, values


@decode_step.mistake(
    "NeuraLegion/shainet #110",
    symptom=(symptoms.WRONG_SHARPNESS, symptoms.LATER_TOKENS_WRONG),
    not_looked_up="NeuraLegion/shainet #110",
)
def scales_the_cache_in_place(x, keys, values, w_query, w_key, w_value):
    """The first step is right. From then on the keys in the cache get smaller
    with each step, and attention more and more uniform.
    cause: What a cache gives out is its memory; an operation in place on it
    changes what every later token reads.
    fix: Compute a new tensor; scale the query or the scores, not the keys."""
    keys = torch.cat([keys, x @ w_key])
    values = torch.cat([values, x @ w_value])
    keys /= math.sqrt(keys.shape[-1])
    weights = (x @ w_query @ keys.mT).softmax(-1)
    return weights @ values, keys, values


@task(
    against="a loop over pairs",
    cases={
        "one new token, two cached": (2, 1),
        "two new tokens, one cached": (1, 2),
        "three new tokens, nothing cached": (0, 3),
        "three new tokens, four cached": (4, 3),
        "twelve new tokens, 300 cached": (300, 12),
        "300 new tokens, three cached": (3, 300),
        "64 new tokens, 128 cached": (128, 64),
    },
)
def chunk_mask(n_cached, n_new):
    """True where a new token may attend, (n_new, n_cached + n_new): the cached
    tokens, the new ones before it, itself"""
    keys = range(n_cached + n_new)
    rows = [[key <= n_cached + t for key in keys] for t in range(n_new)]
    return torch.tensor(rows)


@chunk_mask.mistake(
    "pytorch/pytorch #108108, hyprstream/hyprstream #1521",
    symptom=symptoms.LATER_TOKENS_WRONG,
)
def counts_from_the_first_query(n_cached, n_new):
    """No error; the new tokens see the beginning of the text and neither its
    end nor themselves.
    cause: The rows of the mask are counted from the first token of the text:
    the top left corner of the square.
    fix: The new tokens are the last ones: take the last rows, key ≤ n_cached +
    query."""
    return causal_mask(n_cached + n_new)[:n_new]


@chunk_mask.mistake(
    "Mikyx-1/TinyLLM #17",
    symptom=(symptoms.SEES_WRONG_TOKENS, symptoms.LATER_TOKENS_WRONG),
)
def cuts_the_mask_to_one_row(n_cached, n_new):
    """Token by token all is right; in a chunk the tokens see those that come
    after them, and what they hold in the next layer is wrong.
    cause: One new token needs the last row, in which all is allowed. That row
    is used for all tokens of a chunk, so that none is masked.
    fix: A row for each new token: the last n_new rows of the causal mask."""
    return causal_mask(n_cached + n_new)[-1:]


@chunk_mask.mistake(
    "rasbt/LLMs-from-scratch #697, jingyaogong/minimind #631",
    symptom=(symptoms.SIZES, symptoms.LATER_TOKENS_WRONG),
)
def masks_the_new_tokens_alone(n_cached, n_new):
    """Right without a cache and right token by token; a chunk after a cached
    text fails with an error about shapes.
    cause: The mask is as wide as the new tokens. For a single one that is one
    entry, which is broadcast over all keys and happens to be right.
    fix: The mask has a column for each key, the cached ones too."""
    return causal_mask(n_new)


_POSITIONS = {
    "one token after two": (ints(2), marks("1")),
    "after two, padded on the right": (ints(2), marks("10")),
    "three tokens after two": (ints(2), marks("111")),
    "nothing cached, padded on the left": (ints(0, 0), marks("11", "01")),
    "three rows, padding in the midst of one": (
        ints(1, 0, 3),
        marks("011", "101", "000"),
    ),
    "a token for rows of 4097 and three, and none": (
        ints(4097, 3, 5),
        marks("1", "1", "0"),
    ),
    "17 rows of 131 tokens": (
        torch.arange(17),
        torch.arange(17 * 131).reshape(17, 131) % 7 != 3,
    ),
    "16, 32, 64 and 128 tokens after 128, 64, 32 and 16": (
        ints(128, 64, 32, 16, 0, 1),
        torch.arange(144) < ints([16], [32], [64], [128], [16], [15]),
    ),
}


@task(against="counting token by token", cases=_POSITIONS)
def cached_positions(before, real):
    """the position of each new token, (B, T): how many tokens of its row stand
    before it, `before` of them in the cache; 0 at padding"""
    found = torch.zeros(real.shape, dtype=torch.long, device=real.device)
    for row, count in enumerate(before.tolist()):
        for column in real[row].nonzero()[:, 0].tolist():
            found[row, column] = count
            count += 1
    return found


@cached_positions.mistake(
    "ml-explore/mlx-lm #93, Blaizzy/mlx-vlm #1983",
    symptom=symptoms.LATER_TOKENS_WRONG,
    not_looked_up="Blaizzy/mlx-vlm #1983",
)
def starts_again_at_zero(before, real):
    """The prompt is right; from the second written token on, the logits are
    not those of the full pass.
    cause: The positions are made from the tokens of this call alone: each new
    one is told that it is the first of the text.
    fix: Start at the number of tokens that the cache holds of the row."""
    return (real.long().cumsum(-1) - 1) * real


@cached_positions.mistake(
    "unslothai/unsloth #3803", symptom=symptoms.WRONG_IN_A_BATCH
)
def counts_the_width_of_the_batch(before, real):
    """The longest row of a batch is right, shorter ones are not, and alone
    each of them would be.
    cause: One count serves all rows, that of the padded width, as if the
    padding were text.
    fix: A count for each row, of real tokens only."""
    columns = torch.arange(real.shape[-1], device=real.device)
    return (before.max() + columns) * real


_STORED = randns((3, 2, 1, 3), (3, 2, 4, 3), (3, 2, 4, 5), seed=11)
_LONG = randns((2, 2, 1, 3), (2, 2, 302, 3), (2, 2, 302, 5), seed=21)


@task(
    against="torch's attention, text by text",
    gradients=True,
    cases={
        "two of four slots filled": (*(x[:1] for x in _STORED), ints(2)),
        "rows of one, four and two": (*_STORED, ints(1, 4, 2)),
        "rows of 300 and one": (*_LONG, ints(300, 1)),
        "a score far below an empty slot's": (
            f64([[[1e5, 0]]]),
            f64([[[-1e5, 0], [0, 0]]]),
            f64([[[1], [2]]]),
            ints(1),
        ),
        "17 texts, 17 heads, 130 wide": (
            *randns(
                (17, 17, 1, 130), (17, 17, 5, 130), (17, 17, 5, 131), seed=51
            ),
            torch.arange(17) % 5 + 1,
        ),
        "rows of 16, 32, 64 and 128, of 15 and 17": (
            *randns((6, 1, 1, 3), (6, 1, 150, 3), (6, 1, 150, 2), seed=71),
            ints(16, 32, 64, 128, 15, 17),
        ),
    },
)
def attend_stored(q, keys, values, lengths):
    """the context of one query a row, (B, H, 1, d_v), from the first `lengths`
    slots of its row; what stands behind them is not read"""
    return torch.cat(
        [
            F.scaled_dot_product_attention(
                q[b : b + 1], keys[b : b + 1, :, :n], values[b : b + 1, :, :n]
            )
            for b, n in enumerate(lengths.tolist())
        ]
    )


@attend_stored.mistake(
    "huggingface/transformers #30414", symptom=symptoms.LATER_TOKENS_WRONG
)
def reads_the_empty_slots(q, keys, values, lengths):
    """As long as the memory is fresh the contexts are too small, for zeros
    share the weight; after reuse an older text is mixed in.
    cause: All slots are read, also those that nobody, or an earlier request,
    has written.
    fix: Mask the slots from the row's length on."""
    return F.scaled_dot_product_attention(q, keys, values)


@attend_stored.mistake(symptom=symptoms.WRONG_IN_A_BATCH)
def cuts_at_the_longest_row(q, keys, values, lengths):
    """Right in a batch of equal lengths, and so in a test with one prompt
    given twice; wrong in the shorter rows of any other.
    cause: The memory is cut at the longest row, and no mask keeps the shorter
    ones from what lies behind their end.
    fix: Combine the cut with a mask of each row's own length."""
    n = int(lengths.max())
    return F.scaled_dot_product_attention(q, keys[:, :, :n], values[:, :, :n])


def _writer(positions, context=32):
    """A small GPT with drawn weights, in evaluation mode."""
    sizes = dict(vocab_size=300, d_model=8, n_heads=2, n_layers=2)
    config = GPTConfig(**sizes, context=context, positions=positions)
    model = drawn(GPT(config), seed=8)
    return model.eval().requires_grad_(False)


_FIRST = ints(257, 0, 299, 1)  # both begin with the same token
_SECOND = ints(257, 2)


@task(
    against="each request alone, without a cache",
    cases=lambda: {
        "two requests": (_writer("sinusoidal"), (_FIRST, _SECOND), 3),
        "the other order": (_writer("alibi"), (_SECOND, _FIRST), 3),
        "the same, twice": (_writer("learned"), (_SECOND, _SECOND), 12),
        "17 requests": (
            _writer("learned"),
            [ints(n, 299 - n) for n in range(17)],
            1,
        ),
        "a request of 140 tokens": (
            _writer("sinusoidal", context=150),
            (torch.arange(140) * 2, _SECOND),
            2,
        ),
        "requests of 16, 32, 64 and 128 tokens": (
            _writer("sinusoidal", context=150),
            [torch.arange(n) * 2 for n in (16, 32, 64, 128)],
            2,
        ),
    },
)
def answers(model, requests, n):
    """for each request (T,) the n tokens that the model, alone with it, finds
    the likeliest, one after the other; a list of (n,)"""
    found = []
    with torch.no_grad():
        for request in requests:
            for _ in range(n):
                best = model(request[None])[0, -1].argmax()
                request = torch.cat([request, best[None]])
            found.append(request[-n:])
    return found


@answers.mistake(
    "Lightning-AI/litgpt #1596, mudler/LocalAI #6747",
    symptom=(symptoms.WRONG_IN_A_BATCH, symptoms.DIFFERS_EACH_TIME),
)
def shares_the_cache(model, requests, n):
    """The first answer is right. The second depends on who asked before, and
    hands on what was in the other's text.
    cause: The cache still holds the earlier request: the new one is read as if
    it stood behind it.
    fix: Give each request a cache of its own, or reset the one there is."""
    longest = sum(len(request) + n for request in requests)
    cache = model.new_cache(1, min(longest, model.config.context))
    found = []
    with torch.no_grad():
        for request in requests:
            new = request[None]
            written = []
            for _ in range(n):
                new = model(new, cache=cache)[:, -1].argmax(-1, keepdim=True)
                written.append(new[0])
            found.append(torch.cat(written))
    return found


def _fit(memory, n_parameters, *sizes, size=2):
    """A case of the task that asks how many texts fit into a memory."""
    names = ("n_layers", "n_heads", "n_kv_heads", "d_k", "capacity")
    return call(memory, n_parameters, **dict(zip(names, sizes)), size=size)


_SEVEN = (7_241_732_096, 32, 32, 8, 128, 8192)


@task(
    against="a sum over layers",
    cases={
        "a tiny model, filled": _fit(1040, 100, 1, 2, 1, 4, 5, size=4),
        "a byte less": _fit(1039, 100, 1, 2, 1, 4, 5, size=4),
        "GPT-2 small": _fit(16 * 10**9, 124_439_808, 12, 12, 12, 64, 1024),
        "seven billion, shared heads, 80 GB": _fit(80 * 10**9, *_SEVEN),
        "too small for one": _fit(155 * 10**8, *_SEVEN),
        "too small for the parameters": _fit(10**10, *_SEVEN),
        "forty layers, 17 heads of 130": _fit(
            10**9, 10**6, 40, 34, 17, 130, 300
        ),
        "64 rows of 128 tokens, filled": _fit(
            538_870_912, 10**6, 16, 16, 16, 64, 128
        ),
    },
)
def rows_that_fit(
    memory, n_parameters, *, n_layers, n_heads, n_kv_heads, d_k, capacity, size
):
    """how many sequences of `capacity` tokens fit into `memory` bytes beside
    the parameters, of `size` bytes each like the cache's numbers"""
    free = memory - n_parameters * size
    row = 0
    for _ in range(n_layers):
        for _ in ("keys", "values"):
            row += n_kv_heads * capacity * d_k * size
    return max(0, free // row)


@rows_that_fit.mistake(
    "meta-pytorch/torchtune #38, vllm-project/vllm #29736",
    symptom=symptoms.WRONG_COUNT,
)
def gives_every_head_a_cache(
    memory, n_parameters, *, n_layers, n_heads, n_kv_heads, d_k, capacity, size
):
    """Right for models in which each head has keys of its own; with shared
    keys, a fraction of what would fit.
    cause: The heads of the queries are counted; keys and values have fewer.
    fix: Count n_kv_heads: queries are not kept.
    hint: Of which heads does a cache keep something?"""
    row = 2 * n_layers * n_heads * capacity * d_k * size
    return max(0, (memory - n_parameters * size) // row)


@rows_that_fit.mistake("jranaraki/vllm-fit #2", symptom=symptoms.WRONG_COUNT)
def counts_the_heads_twice(
    memory, n_parameters, *, n_layers, n_heads, n_kv_heads, d_k, capacity, size
):
    """Far too few: what would fit, divided by the number of heads.
    cause: The heads are counted twice: once by their number and once in the
    model's width, which is all of them side by side.
    fix: Heads times the width of one head, n_kv_heads · d_k.
    hint: How many numbers has the key of one token, over all its heads?"""
    d_model = n_heads * d_k
    row = 2 * n_layers * n_heads * d_model * capacity * size
    return max(0, (memory - n_parameters * size) // row)


@task(against="a loop over tokens", cases=_POSITIONS)
def batch_mask(before, real):
    """True where a new token may read a slot, (B, T, S), S the longest row
    afterwards; a token's slot is its position, and padding reads none"""
    S = int((before + real.sum(-1)).max())
    mask = torch.zeros(*real.shape, S, dtype=torch.bool, device=real.device)
    for row, count in enumerate(before.tolist()):
        for column in real[row].nonzero()[:, 0].tolist():
            count += 1
            mask[row, column, :count] = True
    return mask


@batch_mask.mistake(symptom=symptoms.WRONG_IN_A_BATCH)
def one_mask_for_all_rows(before, real):
    """Right in the longest row; the others read slots behind their own end.
    cause: One causal mask serves all rows, made for the longest.
    fix: Compare the slots with each row's own positions.
    hint: In your batch, does the shorter row's new token see fewer slots?"""
    S = int((before + real.sum(-1)).max())
    last = S - real.shape[-1] + torch.arange(real.shape[-1])  # (T,)
    allowed = torch.arange(S) <= last[:, None]  # (T, S)
    return allowed.to(real.device) & real[..., None]


@batch_mask.mistake(
    "hyprstream/hyprstream #1521", symptom=symptoms.LATER_TOKENS_WRONG
)
def forgets_what_is_cached(before, real):
    """Right for a fresh cache; afterwards the new tokens see the beginning of
    the text only.
    cause: The new tokens are counted from 0, as if nothing were cached.
    fix: Add the row's length so far to the count.
    hint: How many slots may the first new token of a row of five read?"""
    S = int((before + real.sum(-1)).max())
    place = real.long().cumsum(-1) - 1  # (B, T)
    slots = torch.arange(S, device=real.device)
    return (slots <= place[..., None]) & real[..., None]


_STORE, _NEW = randns((4, 2), (7, 2), seed=31)


@task(
    against="a ring of slots, key by key",
    gradients=True,  # with two keys for one slot both would get a part
    cases={
        "a token into a fresh window": (_STORE * 0, 0, _NEW[:1]),
        "a token into a full one": (_STORE, 4, _NEW[:1]),
        "three tokens around the end": (_STORE, 6, _NEW[:3]),
        "a prompt longer than the window": (_STORE * 0, 0, _NEW),
        "a long chunk later on": (_STORE, 21, _NEW[:6]),
        "300 keys into a window of 131": (
            *randns((131, 130), seed=33),
            1000,
            *randns((300, 130), seed=34),
        ),
        "128 keys into a full window of 256": (
            *randns((256, 3), seed=35),
            256,
            *randns((128, 3), seed=36),
        ),
    },
)
def roll_in(store, n_seen, new):
    """the window (C, d) with the new keys in it: position p stands in slot p
    mod C, the latest C are kept and no other is written; the given one stays
    as it is"""
    slots = list(store)
    for position, key in enumerate(new, n_seen):
        slots[position % len(slots)] = key
    return torch.stack(slots)


@roll_in.mistake(symptom=symptoms.LATER_TOKENS_WRONG)
def keeps_the_start_of_a_long_chunk(store, n_seen, new):
    """Right as long as chunks are shorter than the window; after a long prompt
    the model knows its beginning and not its end.
    cause: Of a chunk that does not fit, the first tokens are kept.
    fix: Keep the last C of them, each in the slot of its own position.
    hint: After a prompt longer than the window, which tokens shall be in
    it?"""
    store = store.clone()
    new = new[: len(store)]
    slots = (n_seen + torch.arange(len(new), device=new.device)) % len(store)
    store[slots] = new
    return store


@roll_in.mistake(symptom=symptoms.LATER_TOKENS_WRONG)
def stops_at_the_last_slot(store, n_seen, new):
    """Right until the window is full; from then on all new tokens fall into
    one slot, and the rest grows old.
    cause: The place to write is held at the last slot when it should go round,
    or the rest should move up.
    fix: Write to slot p mod C.
    hint: Where does your function write the token after the last slot, and
    where the next one?"""
    store = store.clone()
    for position, key in enumerate(new, n_seen):
        store[min(position, len(store) - 1)] = key
    return store


@task(
    against="a sum over steps",
    cases={
        "one token, the prefill alone": (5, 1, 10, 1),
        "no cost but that of the tokens": (3, 3, 1, 0),
        "no cost but that of the pairs": (3, 3, 0, 1),
        "two tokens after one": (1, 2, 10, 1),
        "GPT-2's numbers": (100, 50, 247_064_064, 36_864),
        "200 tokens after 300": (300, 200, 247_064_064, 36_864),
        "64 tokens after 128": (128, 64, 247_064_064, 36_864),
    },
)
def writing_flops(prompt, n, per_token, per_pair):
    """the pair (without a cache, with one) of FLOPs for writing n tokens after
    a prompt; reading T tokens with S keys takes T · per_token + T · S ·
    per_pair"""
    without = cached = 0
    for step in range(n):
        S = prompt + step
        without += S * per_token + S * S * per_pair
        T = prompt if step == 0 else 1
        cached += T * per_token + T * S * per_pair
    return without, cached


@writing_flops.mistake(
    "MrYxJ/calculate-flops.pytorch #26, autoliuweijie/FastBERT #14",
    symptom=symptoms.WRONG_COUNT,
)
def counts_the_linear_layers_alone(prompt, n, per_token, per_pair):
    """Too little, and the more so the longer the context.
    cause: Only the layers with parameters are counted. The products of queries
    with keys and of weights with values have none.
    fix: Add T · S · per_pair for them.
    hint: Which products of your model have no parameters?"""
    without = sum(prompt + step for step in range(n)) * per_token
    return without, (prompt + n - 1) * per_token


@writing_flops.mistake(
    "ml-explore/mlx-lm #1039",
    symptom=(symptoms.LATER_TOKENS_WRONG, symptoms.WRONG_COUNT),
    not_looked_up="ml-explore/mlx-lm #1039",
)
def feeds_the_last_token_twice(prompt, n, per_token, per_pair):
    """With the cache one step too many: n of them after the prefill.
    cause: The prefill already gives the first new token, from the logits of
    the prompt's last one; reading that one again is for nothing.
    fix: A prefill and n − 1 steps.
    hint: What do you know once the prompt has been read?"""
    lengths = [prompt + step for step in range(n)]
    without = sum(S * per_token + S * S * per_pair for S in lengths)
    cached = prompt * per_token + prompt * prompt * per_pair
    cached += sum(per_token + S * per_pair for S in lengths)
    return without, cached
