"""Chapter 18, fewer keys: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F

from attnbook.attention import scaled_dot_product_attention
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, randns, watched
from attnbook.teach.check.running import call

task = tasks_of(18)


def _latent(T, S, H, d, d_c, d_k, d_v, seed, by=1):
    """Tokens x (T, d), latents (S, d_c), and the matrices of H heads; that of
    the queries is multiplied by `by`."""
    sizes = (T, d), (S, d_c), (H, d, d_k), (H, d_c, d_k), (H, d_c, d_v)
    x, latents, w_query, *others = randns(*sizes, seed=seed)
    return x, latents, w_query * by, *others


@task(
    against="torch's attention over each head's own keys and values",
    gradients=True,
    cases={
        "one head as wide as the latent": _latent(1, 3, 1, 2, 2, 2, 2, 1),
        "two heads, all widths different": _latent(1, 4, 2, 3, 2, 4, 5, 6),
        "three tokens after two": _latent(3, 5, 2, 3, 4, 4, 4, 11),
        "a first token": _latent(1, 1, 3, 4, 1, 2, 3, 16),
        "large scores": _latent(4, 4, 2, 3, 4, 5, 2, 21, by=30_000),
        "two tokens, all scores below −10⁹": (
            f64([2**8], [2**8]),
            f64([2**8], [3 * 2**7]),
            f64([[2**8]]),
            f64([[-(2**7)]]),
            f64([[2**-7]]),
        ),
        "17 heads": _latent(3, 5, 17, 3, 4, 4, 4, 26),
        "131 tokens after six, all wider than 128": _latent(
            131, 137, 1, 130, 131, 132, 133, 31
        ),
        "64 tokens after 64": _latent(64, 128, 1, 3, 4, 2, 3, 36),
    },
)
def latent_attention(x, latents, w_query, w_key, w_value):
    """each head's context of the last tokens, (H, T, d_v): its keys and
    values are the latents by its w_key and its w_value"""
    T, S = len(x), len(latents)
    mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
    found = []
    for query, key, value in zip(w_query, w_key, w_value):
        context = F.scaled_dot_product_attention(
            (x @ query)[None],
            (latents @ key)[None],
            (latents @ value)[None],
            mask[None],
        )
        found.append(context)
    return torch.cat(found)


@latent_attention.mistake(symptom=symptoms.SIZES)
def absorbs_without_transposing(x, latents, w_query, w_key, w_value):
    """An error about shapes; where a head is as wide as the latent there is
    none, and every weight is wrong.
    cause: The key is c U, so the score q · (c U) is (q Uᵀ) · c. The query is
    multiplied by U as it stands.
    fix: Multiply the query by the transposed matrix."""
    q = x @ w_query
    scores = q @ w_key @ latents.T / math.sqrt(q.shape[-1])
    T, S = len(x), len(latents)
    mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights @ latents @ w_value


@latent_attention.mistake(symptom=symptoms.WRONG_SHARPNESS)
def scales_by_the_latents_width(x, latents, w_query, w_key, w_value):
    """Right where a head is as wide as the latent. Elsewhere the weights are
    too even or too sharp, and a model trained with keys writes badly.
    cause: The product is now with vectors of width d_c, and its root is
    taken. The scores are the same numbers as before, of width d_k.
    fix: Divide by √d_k in both forms."""
    asked = x @ w_query @ w_key.mT
    scores = asked @ latents.T / math.sqrt(asked.shape[-1])
    T, S = len(x), len(latents)
    mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights @ latents @ w_value


def _pairs(T, S, window, sinks):
    """A case with T queries and S keys, a window and sinks."""
    return call(T, S, window=window, sinks=sinks)


@task(
    against="a loop over pairs",
    home="window.sink_mask",
    cases={
        "a window of one": call(2, 2, window=1),
        "a window of two, all queries": _pairs(13, 13, 2, 0),
        "two queries behind a cache": _pairs(2, 6, 3, 0),
        "two sinks": _pairs(6, 6, 2, 2),
        "more sinks than keys": _pairs(2, 3, 1, 4),
        "a single query, long after eleven sinks": _pairs(1, 300, 260, 11),
        "131 queries, 131 sinks": _pairs(131, 300, 20, 131),
        "64 queries of 128, a window of 32, 16 sinks": _pairs(64, 128, 32, 16),
    },
)
def sink_mask(n_queries, n_keys, *, window, sinks=0):
    """True where a query, of the last n_queries, may read a key: not a later
    one, and the last `window` alone, itself one of them, or the first
    `sinks`; (n_queries, n_keys)"""
    rows = []
    for query in range(n_keys - n_queries, n_keys):
        last = [k for k in range(n_keys) if query - window < k <= query]
        first = [*range(min(sinks, query))]
        read = {*last, *first}
        rows.append([k in read for k in range(n_keys)])
    return torch.tensor(rows)


@sink_mask.mistake(
    "huggingface/transformers #39408, ml-explore/mlx-lm #390",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def looks_one_too_far_back(n_queries, n_keys, *, window, sinks=0):
    """A window of w reads w + 1 keys. Nothing fails; the model reads what it
    has not been trained to read, and a cache of w slots differs from it.
    cause: Kernels count how far back a query looks, its own place not
    included; a model's window includes it.
    fix: A distance below w: w − 1 keys back, and the own one."""
    query = torch.arange(n_keys - n_queries, n_keys)[:, None]
    key = torch.arange(n_keys)
    near = (query - key < window + 1) | (key < sinks)
    return (key <= query) & near


@sink_mask.mistake(
    "karpathy/nanochat #452, #456", symptom=symptoms.SEES_WRONG_TOKENS
)
def a_single_query_reads_everything(n_queries, n_keys, *, window, sinks=0):
    """The prompt is read through the window; each token written afterwards
    reads the whole text.
    cause: A single query needs no causal mask, so it gets none, and with it
    goes the window.
    fix: Leave out the mask only where nothing is masked: up to w keys."""
    query = torch.arange(n_keys - n_queries, n_keys)[:, None]
    window = n_keys if n_queries == 1 else window
    key = torch.arange(n_keys)
    near = (query - key < window) | (key < sinks)
    return (key <= query) & near


@sink_mask.mistake("trymirai/lalamo #200", symptom=symptoms.LATER_TOKENS_WRONG)
def counts_the_window_from_the_chunk(n_queries, n_keys, *, window, sinks=0):
    """A prompt in one call is right. With keys in the cache the window is too
    long, and token by token gives other logits than a chunk.
    cause: The rows are numbered from 0 in each call, so that cached keys are
    taken for near ones.
    fix: Compare positions in the text: the queries are the last of them."""
    row = torch.arange(n_queries)[:, None]
    key = torch.arange(n_keys)
    near = (row - key < window) | (key < sinks)
    return (key <= row + n_keys - n_queries) & near


_RING = randns((3, 2), (3, 2), seed=41)
_NEXT = randns((7, 2), (7, 2), (7, 2), seed=51)


def _roll(n_seen, T):
    """The next tokens, a ring of keys and values, and how many it has seen."""
    ring = [a if n_seen else a * 0 for a in _RING]
    return *(a[:T] for a in _NEXT), *ring, n_seen


@task(
    against="a list of all keys, token by token",
    cases={
        "a first token": _roll(0, 1),
        "a token into a full ring": _roll(3, 1),
        "a token that fills the ring": _roll(2, 1),
        "a token around the end": _roll(5, 1),
        "two tokens at once": _roll(2, 2),
        "as many as there are slots": _roll(4, 3),
        "a prompt longer than the window": _roll(0, 7),
        "a long chunk later on": _roll(23, 5),
        "scores far below an empty slot's": (
            f64([2**31], [2**31]),
            f64([-1], [-1.5]),
            f64([1], [2]),
            f64([0], [0], [0]),
            f64([0], [0], [0]),
            0,
        ),
        "140 tokens into a ring of 131, 130 wide": (
            *randns(*[(140, 130)] * 3, *[(131, 130)] * 2, seed=61),
            1000,
        ),
        "64 tokens into a full ring of 128": (
            *randns(*[(64, 3)] * 3, *[(128, 3)] * 2, seed=71),
            128,
        ),
    },
)
def rolling_step(q, k, v, keys, values, n_seen):
    """the contexts (T, d) of new tokens that read the last w keys each, w
    being the slots (w, d); and the slots afterwards, position p in slot p mod
    w. The given ones stay as they are"""
    w, keys, values = len(keys), list(keys), list(values)
    context = []
    for position, token in enumerate(zip(q, k, v), n_seen):
        query, keys[position % w], values[position % w] = token
        there = range(max(0, position - w + 1), position + 1)
        near = torch.stack([keys[p % w] for p in there])
        read = torch.stack([values[p % w] for p in there])
        weights = (near @ query / math.sqrt(len(query))).softmax(0)
        context.append(weights @ read)
    return torch.stack(context), torch.stack(keys), torch.stack(values)


def stored_after(keys, new, n_seen):
    """A ring of keys after some new ones were written over the oldest."""
    w = len(keys)
    keys = keys.clone()
    last = torch.arange(n_seen, n_seen + len(new))[-w:]
    keys[last % w] = new[-w:]
    return keys


@rolling_step.mistake(
    "Lightning-AI/litgpt #2182, pytorch/executorch #20346",
    symptom=symptoms.LATER_TOKENS_WRONG,
)
def stores_before_it_reads(q, k, v, keys, values, n_seen):
    """Token by token all is right. Of a chunk the first tokens miss keys that
    are still in their window; of a long prompt they find none at all.
    cause: The chunk is written into the ring first, over keys that its first
    tokens still have to read.
    fix: Read the kept keys with the new ones behind them, and store then."""
    w = len(keys)
    end = n_seen + len(q)
    new = torch.arange(n_seen, end)
    keys = keys.clone()
    values = values.clone()
    last = new[-w:] % w
    keys[last], values[last] = k[-w:], v[-w:]
    kept = torch.arange(max(0, end - w), end)
    distance = new[:, None] - kept
    mask = (distance >= 0) & (distance < w)
    near = keys[kept % w], values[kept % w]
    out = scaled_dot_product_attention(q, *near, mask=mask)
    return out.context, keys, values


@rolling_step.mistake(
    "ollama/ollama #14912", symptom=symptoms.SEES_WRONG_TOKENS
)
def reads_the_ring_in_its_order(q, k, v, keys, values, n_seen):
    """Right until the ring goes round for the first time. From then on tokens
    read keys from before their window and miss keys inside it.
    cause: Slot 0 is taken for the oldest key. In a ring the oldest stands
    where the next one will be written.
    fix: Know the position of each slot, and mask by positions."""
    w = len(keys)
    old = torch.arange(max(0, n_seen - w), n_seen)
    new = torch.arange(n_seen, n_seen + len(q))
    distance = new[:, None] - torch.cat([old, new])
    mask = (distance >= 0) & (distance < w)
    k_all = torch.cat([keys[: len(old)], k])
    v_all = torch.cat([values[: len(old)], v])
    out = scaled_dot_product_attention(q, k_all, v_all, mask=mask)
    return (
        out.context,
        stored_after(keys, k, n_seen),
        stored_after(values, v, n_seen),
    )


def _layers(n_tokens, *sizes):
    """A case of the task that counts the cache's bytes over all layers."""
    names = ("n_layers", "every", "window", "n_kv_heads", "d_k", "size")
    return call(n_tokens, **dict(zip(names, sizes)))


@task(
    against="a sum over layers and tokens",
    cases={
        "one layer that reads everything": _layers(5, 1, 1, 2, 1, 3, 4),
        "every second layer": _layers(10, 4, 2, 3, 2, 8, 2),
        "a text shorter than the window": _layers(6, 4, 2, 100, 2, 8, 2),
        "none that reads everything": _layers(50, 11, 12, 8, 11, 16, 2),
        "a long text, every sixth layer": _layers(
            32_768, 26, 6, 512, 1, 256, 2
        ),
        "two of forty layers, 17 heads of 130": _layers(
            50, 40, 17, 12, 17, 130, 2
        ),
        "128 tokens, windows of 64 in twelve of sixteen layers": _layers(
            128, 16, 4, 64, 16, 64, 2
        ),
    },
)
def kept_bytes(n_tokens, *, n_layers, every, window, n_kv_heads, d_k, size):
    """bytes of keys and values after n_tokens: layers number `every`, 2 ·
    `every`, … (from 1) keep all tokens, the others the last `window`"""
    found = 0
    for layer in range(1, n_layers + 1):
        for token in range(n_tokens):
            if layer % every == 0 or token >= n_tokens - window:
                found += 2 * n_kv_heads * d_k * size
    return found


def bytes_of(tokens, n_kv_heads, d_k, size):
    """The bytes of the keys and values of so many tokens in one layer."""
    return 2 * tokens * n_kv_heads * d_k * size


@kept_bytes.mistake(
    "ollama/ollama #16958, tenstorrent/tt-xla #5727",
    symptom=symptoms.WRONG_COUNT,
)
def takes_the_bytes_of_one_token(
    n_tokens, *, n_layers, every, window, n_kv_heads, d_k, size
):
    """Right for short texts. For long ones it finds much more than is kept.
    cause: A token's bytes in all layers are multiplied by the number of
    tokens. In a layer with a window old tokens go as new ones come.
    fix: At most `window` tokens in such a layer.
    hint: How much does a layer with a window keep of a very long text?"""
    return bytes_of(n_layers * n_tokens, n_kv_heads, d_k, size)


@kept_bytes.mistake("alvarobartt/hf-mem #60", symptom=symptoms.WRONG_COUNT)
def leaves_out_the_windowed_layers(
    n_tokens, *, n_layers, every, window, n_kv_heads, d_k, size
):
    """Too few, most of all for short texts; for a model without a layer that
    reads everything, none.
    cause: The layers with a window are taken to keep nothing.
    fix: They keep the last `window` tokens.
    hint: What does a layer keep that reads the last tokens only?"""
    return bytes_of(n_layers // every * n_tokens, n_kv_heads, d_k, size)


@kept_bytes.mistake(symptom=symptoms.WRONG_COUNT)
def fills_the_windows_at_once(
    n_tokens, *, n_layers, every, window, n_kv_heads, d_k, size
):
    """Too many for a text that is shorter than the window.
    cause: Each window is counted whole, also before it is full.
    fix: The smaller of window and text.
    hint: Your number for a text of one token: what is in it?"""
    whole = n_layers // every
    tokens = whole * n_tokens + (n_layers - whole) * window
    return bytes_of(tokens, n_kv_heads, d_k, size)


@kept_bytes.mistake(symptom=symptoms.WRONG_COUNT)
def puts_a_window_in_every_layer(
    n_tokens, *, n_layers, every, window, n_kv_heads, d_k, size
):
    """Right up to the window; then the number stays, and the memory grows.
    cause: Every layer is taken to have the window.
    fix: Count the layers that read everything by themselves.
    hint: Which layers still grow when the text is longer than the window?"""
    tokens = n_layers * min(n_tokens, window)
    return bytes_of(tokens, n_kv_heads, d_k, size)


def _weight(H, d_k, d_in, to, seed):
    """The keys' and values' matrix of H heads, H, and the heads to keep."""
    return *randns((2 * H * d_k, d_in), seed=seed), H, to


@task(
    against="a loop over heads",
    gradients=True,
    cases={
        "two heads into one": _weight(2, 1, 2, 1, 61),
        "four heads into two": _weight(4, 3, 5, 2, 62),
        "six heads into two": _weight(6, 2, 3, 2, 63),
        "four heads stay four": _weight(4, 2, 3, 4, 64),
        "48 heads into sixteen": _weight(48, 1, 2, 16, 65),
        "34 heads into 17, 130 wide": _weight(34, 3, 130, 17, 66),
    },
)
def pool_key_value(weight, n_heads, n_kv_heads):
    """the weight (2·H_kv·d_k, d_in) of fewer heads: first the rows of all
    keys, then those of all values, as in the given (2·H·d_k, d_in). Each head
    is the mean of heads that stand in a row"""
    group = n_heads // n_kv_heads
    found = []
    for part in weight.chunk(2):
        heads = part.chunk(n_heads)
        for n in range(0, n_heads, group):
            total = heads[n]
            for other in heads[n + 1 : n + group]:
                total = total + other
            found.append(total / group)
    return torch.cat(found)


@pool_key_value.mistake(symptom=symptoms.TRAINS_BADLY)
def adds_the_heads_up(weight, n_heads, n_kv_heads):
    """Scores and contexts are too large, and the more so the more heads are
    pooled into one; training on has to undo that first.
    cause: The heads of a group are summed.
    fix: Divide by their number: the mean.
    hint: If all heads were equal, what should the pooled head be?"""
    sizes = 2, n_kv_heads, n_heads // n_kv_heads, -1
    return weight.unflatten(0, sizes).sum(2).flatten(0, 2)


@pool_key_value.mistake(symptom=symptoms.WRONG_NUMBERS)
def pools_heads_that_are_apart(weight, n_heads, n_kv_heads):
    """The right shape, and right for a single head; for more, each query asks
    a head into which its own keys did not go.
    cause: Heads 0, 2, 4 are pooled, and 1, 3, 5. The queries that will share
    a head of keys stand in a row: 0, 1, 2, and 3, 4, 5.
    fix: Cut into (H_kv, group), not (group, H_kv), and take the mean over the
    group.
    hint: With four heads and two afterwards: which head of keys will query
    head 1 ask?"""
    sizes = 2, n_heads // n_kv_heads, n_kv_heads, -1
    return weight.unflatten(0, sizes).mean(1).flatten(0, 2)


@pool_key_value.mistake(symptom=symptoms.WRONG_NUMBERS)
def forgets_that_values_stand_behind(weight, n_heads, n_kv_heads):
    """The right shape. Keys and values are mixed, or each head is cut through.
    cause: All rows are cut into heads at once, as if the weight held keys
    alone; half of its rows belong to values.
    fix: Cut into the two halves first.
    hint: Which rows of the weight belong to the first value?"""
    group = n_heads // n_kv_heads
    return weight.unflatten(0, (group, -1)).mean(0)


@pool_key_value.mistake(symptom=symptoms.TRAINS_BADLY)
def keeps_the_first_of_each_group(weight, n_heads, n_kv_heads):
    """It works, and starts from a worse model than the mean does.
    cause: One head of each group is kept, the others are thrown away.
    fix: Take the mean over the group.
    hint: What becomes of what the other heads have learned?"""
    sizes = 2, n_kv_heads, n_heads // n_kv_heads, -1
    return weight.unflatten(0, sizes)[:, :, 0].flatten(0, 2)


def _decoupled(H, T, S, d_k, d_r, d_c, d_v, seed):
    """Queries, their rotated part, what is kept of S keys, two matrices."""
    sizes = (H, T, d_k), (H, T, d_r), (S, d_c + d_r), (H, d_c, d_k)
    return watched(*randns(*sizes, (H, d_c, d_v), seed=seed))


@task(
    against="torch's attention over each head's own keys and values",
    cases={
        "one head, two keys": _decoupled(1, 1, 2, 2, 2, 2, 2, 71),
        "two heads, all widths different": _decoupled(2, 1, 4, 3, 2, 5, 4, 81),
        "as wide as the rotated part": _decoupled(2, 2, 3, 4, 4, 4, 4, 91),
        "many keys, too many to make": _decoupled(
            2, 1, 400, 64, 2, 3, 64, 101
        ),
        "17 heads": _decoupled(17, 1, 4, 3, 2, 5, 4, 111),
        "131 queries, all wider than 128": randns(
            (1, 131, 130),
            (1, 131, 132),
            (137, 263),
            (1, 131, 130),
            (1, 131, 133),
            seed=121,
        ),
        "16 queries, 128 keys": _decoupled(1, 16, 128, 3, 2, 4, 2, 131),
    },
)
def decoupled_step(q, turned, kept, w_key, w_value):
    """each head's context, (H, T, d_v), without a mask: its keys are the
    latents by w_key with the rotated part behind, the same for all heads;
    made for no token"""
    q, turned, kept, w_key, w_value = (
        a.as_subclass(torch.Tensor) for a in (q, turned, kept, w_key, w_value)
    )
    found = []
    for h in range(len(q)):
        c, r = kept[:, : w_key.shape[1]], kept[:, w_key.shape[1] :]
        keys = torch.cat([c @ w_key[h], r], -1)
        query = torch.cat([q[h], turned[h]], -1)
        found.append(
            F.scaled_dot_product_attention(
                query[None], keys[None], (c @ w_value[h])[None]
            )
        )
    return torch.cat(found)


def by_parts(q, turned, c, r, w_key, w_value, width):
    """Attention on latents c and rotated parts r, which add to the scores."""
    scores = (q @ w_key.mT @ c.T + turned @ r.T) / math.sqrt(width)
    return scores.softmax(-1) @ c @ w_value


@decoupled_step.mistake(
    "ggml-org/llama.cpp #11049, huggingface/transformers #47011",
    symptom=symptoms.WRONG_COUNT,
)
def makes_a_key_for_every_head(q, turned, kept, w_key, w_value):
    """Right, and as slow as if all keys had been kept: at each step those of
    all tokens are made again.
    cause: The matrices are applied to what is kept, instead of to the query
    and to the result.
    fix: q Uᵀ once, and V behind the average.
    hint: Which of your tensors has a head, a key and a width?"""
    d_c = w_key.shape[1]
    c, r = kept[:, :d_c], kept[:, d_c:]
    keys, values = c @ w_key, c @ w_value
    scores = q @ keys.mT + turned @ r.T
    width = q.shape[-1] + turned.shape[-1]
    return (scores / math.sqrt(width)).softmax(-1) @ values


@decoupled_step.mistake(
    "NVIDIA/Megatron-LM #1501", symptom=symptoms.WRONG_SHARPNESS
)
def scales_by_the_usual_width(q, turned, kept, w_key, w_value):
    """No error. The weights are too sharp, and training can become unstable.
    cause: The scale is that of a head without the rotated part. A score is
    now a sum over d_k + d_r products.
    fix: Divide by √(d_k + d_r).
    hint: How wide is a key, with both of its parts?"""
    d_c = w_key.shape[1]
    c, r = kept[:, :d_c], kept[:, d_c:]
    return by_parts(q, turned, c, r, w_key, w_value, q.shape[-1])


@decoupled_step.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_the_front_for_the_rotated_part(q, turned, kept, w_key, w_value):
    """The shapes fit, and the numbers are nonsense.
    cause: What is kept is cut in the wrong order.
    fix: The latent comes first here, d_c numbers, then the rotated part.
    hint: What stands in the first d_c numbers of a row of `kept`?"""
    d_r = turned.shape[-1]
    c, r = kept[:, d_r:], kept[:, :d_r]
    width = q.shape[-1] + d_r
    return by_parts(q, turned, c, r, w_key, w_value, width)


def _sunk(H, T, S, sink, seed):
    """Queries, keys and values of H heads, and each head's sink."""
    return *randns((H, T, 3), (H, S, 3), (H, S, 2), seed=seed), f64(*sink)


@task(
    against="one more key, of this score and of value 0",
    gradients=True,
    cases={
        "one query, one key": _sunk(1, 1, 1, [0.0], 111),
        "a sink for each head": _sunk(2, 3, 4, [-1.0, 2.0], 114),
        "a sink that takes nearly all": _sunk(2, 2, 4, [1.0, 30.0], 117),
        "a sink of a large score": _sunk(1, 2, 3, [800.0], 120),
        "a sink that takes nothing": _sunk(1, 2, 3, [-900.0], 123),
        "large scores, a larger sink": (
            *(x * by for x, by in zip(_sunk(1, 2, 3, [0], 126), (900, 1, 1))),
            f64(1080),
        ),
        "all scores below −10⁹, the sink too": (
            f64([[2**16]]),
            -(2**15) * f64([[1], [1.5]]),
            f64([[1], [2]]),
            f64(-(2**32)),
        ),
        "17 heads, 17 sinks": _sunk(17, 2, 3, [n / 4 for n in range(17)], 129),
        "131 queries, 137 keys, 130 wide": (
            *randns((1, 131, 130), (1, 137, 130), (1, 137, 131), seed=132),
            f64(0.5),
        ),
        "16 queries, 128 keys, 64 wide": (
            *randns((1, 16, 64), (1, 128, 64), (1, 128, 64), seed=142),
            f64(0.5),
        ),
    },
)
def attend_with_sink(q, k, v, sink):
    """attention (H, T, d_v) whose softmax has one more score in its sum, the
    head's `sink` (H,); that score has no key, and its value is 0"""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    more = sink[:, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, more], -1).softmax(-1)
    nothing = torch.zeros_like(v[:, :1])
    return weights @ torch.cat([v, nothing], -2)


@attend_with_sink.mistake(symptom=symptoms.WRONG_NUMBERS)
def shifts_every_score(q, k, v, sink):
    """As if there were no sink: the weights of the keys still sum to one.
    cause: The same number is added to all scores of a row, which changes no
    weight.
    fix: One more term in the sum, exp(sink), and none above it.
    hint: What do the weights of your keys sum to?"""
    scores = q @ k.mT / math.sqrt(q.shape[-1]) + sink[:, None, None]
    return scores.softmax(-1) @ v


@attend_with_sink.mistake(symptom=symptoms.WRONG_NUMBERS)
def drops_the_sink_and_divides_again(q, k, v, sink):
    """As if there were no sink.
    cause: Its weight is cut off, and the others are made to sum to one again.
    fix: Leave them as they are: what the sink took is gone.
    hint: What do the weights of your keys sum to?"""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    more = sink[:, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, more], -1).softmax(-1)[..., :-1]
    return weights / weights.sum(-1, keepdim=True) @ v


@attend_with_sink.mistake(
    "kyegomez/AttentionIsOFFByOne #2, #5", symptom=symptoms.NAN
)
def forgets_that_the_peak_was_taken_off(q, k, v, sink):
    """Right where the largest score is 0, and infinite or zero for large
    sinks.
    cause: The sums hold exp(score − peak), and exp(sink) is added as it is.
    fix: Take the same peak off the sink; and the sink can be the peak.
    hint: From which numbers have you taken the peak off?"""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    exp = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    total = exp.sum(-1, keepdim=True) + sink.exp()[:, None, None]
    return exp / total @ v


@attend_with_sink.mistake(symptom=symptoms.WRONG_SHARPNESS)
def scales_the_sink_as_a_score(q, k, v, sink):
    """The sink takes too much where it is negative, too little elsewhere.
    cause: It is put beside q · k and divided by √d with it.
    fix: Scale the products alone; the sink is a score already.
    hint: Which of your numbers are divided by the root?"""
    scores = q @ k.mT
    more = sink[:, None, None].expand(*scores.shape[:-1], 1)
    both = torch.cat([scores, more], -1) / math.sqrt(q.shape[-1])
    return both.softmax(-1)[..., :-1] @ v
