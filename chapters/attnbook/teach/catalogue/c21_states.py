"""Chapter 21, a state instead of keys: tasks and known mistakes."""

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, marks, randns
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(21)


def read(T, d_k, d_v, *, seed, state=False, fading=1):
    """Queries, keys of length 1, values, shares to write, logs of what is
    kept, times `fading`, and the state before them: all that a rule reads."""
    q, k, v = randns((T, d_k), (T, d_k), (T, d_v), seed=seed)
    beta = torch.sigmoid(randn(T, seed=seed + 3))
    log_alpha = F.logsigmoid(randn(T, seed=seed + 4)) * fading
    before = (
        randn(d_k, d_v, seed=seed + 5) if state else f64(*[[0] * d_v] * d_k)
    )
    return q, F.normalize(k, dim=-1), v, beta, log_alpha, before


def loop(q, k, v, beta, log_alpha, state, *, of=range):
    """The paper's equation, whose state is ours transposed, token by token."""
    S = state.mT
    out = []
    for t in of(len(k)):
        key = k[t][:, None]
        kept = torch.eye(len(key), dtype=k.dtype) - beta[t] * key @ key.mT
        S = log_alpha[t].exp() * S @ kept + beta[t] * v[t][:, None] @ key.mT
        out.append(S @ q[t])
    return torch.stack(out), S.mT


_E = f64([1, 0], [0, 1])
_HAND = (
    f64([1, 0]),
    f64([1, 0]),
    f64([4, 1]),
    f64(0.5),
    f64(0.5).log(),
    f64([2, 0], [0, 6]),
)

_STEPS = {
    "one token, nothing before": read(1, 2, 2, seed=1),
    "one token, half kept, half written": _HAND,
    "two tokens, one key": (
        f64([1, 0], [1, 0]),
        f64([1, 0], [1, 0]),
        f64([4, 1], [2, 3]),
        f64(1, 1),
        f64(0, 0),
        f64([0, 0], [0, 0]),
    ),
    "five tokens": read(5, 3, 2, seed=10),
    "five tokens after others": read(5, 3, 4, seed=20, state=True),
    "three tokens, a state that fades to nothing": (
        *read(3, 2, 2, seed=30)[:4],
        f64(-0.1, -900, -0.2),
        randn(2, 2, seed=39),
    ),
    "131 tokens": read(131, 2, 2, seed=40),
    "a state of 130 by 131": read(2, 130, 131, seed=50, state=True),
    "128 tokens after others": read(128, 2, 2, seed=70, state=True),
}


@task(
    against="the paper's equation with its matrix",
    home="state.step_by_step",
    cases=_STEPS,
    gradients=True,
)
def step_by_step(q, k, v, beta, log_alpha, state):
    """what each token reads, (T, d_v), and the state after the last, (d_k,
    d_v): at each token the state fades, then a share β of the error at its
    key is written there, then the query reads"""
    return loop(q, k, v, beta, log_alpha, state)


def walk(q, k, v, beta, log_alpha, state, step):
    """A loop over tokens with another step: (state, α, q, k, v, β) → the
    state and what is read."""
    out = []
    for t in range(len(k)):
        alpha = log_alpha[t].exp()
        state, o = step(state, alpha, q[t], k[t], v[t], beta[t])
        out.append(o)
    return torch.stack(out), state


@step_by_step.mistake(
    "fla-org/flash-linear-attention #885", symptom=symptoms.WRONG_NUMBERS
)
def takes_the_error_before_fading(q, k, v, beta, log_alpha, state):
    """Right as long as nothing fades. With gates a key that is written again
    is not replaced: something of its old value, or less than nothing, stays.
    cause: The error is what the state lacks before it has faded, and is then
    written into the faded one.
    fix: Fade first; then take the error of what is left."""

    def step(S, alpha, q, k, v, beta):
        error = v - k @ S
        S = alpha * S + beta * torch.outer(k, error)
        return S, q @ S

    return walk(q, k, v, beta, log_alpha, state, step)


@step_by_step.mistake(symptom=symptoms.WRONG_NUMBERS)
def writes_the_value_itself(q, k, v, beta, log_alpha, state):
    """Right for keys that are orthogonal to each other; a key that comes
    again reads the sum of all that was written there.
    cause: The value is added, not the error: this is linear attention.
    fix: First take off what the state holds at the key, v − k S."""

    def step(S, alpha, q, k, v, beta):
        S = alpha * S + beta * torch.outer(k, v)
        return S, q @ S

    return walk(q, k, v, beta, log_alpha, state, step)


@step_by_step.mistake(symptom=symptoms.SEES_WRONG_TOKENS)
def reads_before_it_writes(q, k, v, beta, log_alpha, state):
    """The first token reads nothing, and every token misses itself.
    cause: The query reads the state that earlier tokens have left.
    fix: Write the token first, then read: a token sees itself, as the
    diagonal of a causal mask says."""

    def step(S, alpha, q, k, v, beta):
        o = q @ S
        S = alpha * S
        return S + beta * torch.outer(k, v - k @ S), o

    return walk(q, k, v, beta, log_alpha, state, step)


_CHUNKS = {
    "one token after others": call(*read(1, 2, 2, seed=1, state=True), size=4),
    "one chunk": call(*read(7, 2, 2, seed=10), size=9),
    "two chunks": call(*read(4, 3, 2, seed=20), size=2),
    "a short last chunk": call(*read(5, 3, 2, seed=30), size=2),
    "after others, chunks of one": call(
        *read(3, 2, 2, seed=40, state=True), size=1
    ),
    "after others, a short last chunk": call(
        *read(7, 3, 4, seed=50, state=True), size=3
    ),
    "a state that fades to nothing": call(
        *read(5, 2, 3, seed=60, state=True, fading=2000), size=3
    ),
    "131 tokens, seven at a time": call(
        *read(131, 2, 2, seed=70, state=True), size=7
    ),
    "300 tokens, 130 at a time": call(*read(300, 2, 2, seed=80), size=130),
    "a state of 130 by 131": call(
        *read(3, 130, 131, seed=90, state=True), size=2
    ),
    "128 tokens, 64 at a time": call(
        *read(128, 2, 2, seed=95, state=True), size=64
    ),
}


@task(
    against="the paper's equation, token by token",
    home="state.in_chunks",
    cases=_CHUNKS,
    gradients=True,
)
def in_chunks(q, k, v, beta, log_alpha, state, *, size):
    """what each token reads, (T, d_v), and the state after the last, (d_k,
    d_v), `size` tokens at a time"""
    return loop(q, k, v, beta, log_alpha, state)


@in_chunks.mistake(
    "huggingface/transformers #45513, gittensor-ai-lab/sparkinfer #1071",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def drops_the_state_before_a_chunk(q, k, v, beta, log_alpha, state, *, size):
    """A prompt read at once is right, and so is what is then written word by
    word. A second part of several tokens is read as if nothing came before.
    cause: The kept state is used only if a single token follows; several go
    the way of a prompt, which begins with an empty state.
    fix: Give the kept state to the way of several tokens as well."""
    if len(k) > 1:
        state = torch.zeros_like(state)
    return loop(q, k, v, beta, log_alpha, state)


@in_chunks.mistake(
    "huggingface/transformers #46741, huggingface/transformers #46084",
    symptom=symptoms.LATER_TOKENS_WRONG,
)
def reads_the_first_token_alone(q, k, v, beta, log_alpha, state, *, size):
    """The first token after a kept state is right, all others of the same
    call are wrong, and so is the state.
    cause: Whether a state is there decides for the way of a single token, not
    how many tokens come; only the first of them is written.
    fix: Take that way only if exactly one token comes."""
    if not state.any() or len(k) == 1:
        return loop(q, k, v, beta, log_alpha, state)
    out, state = loop(q[:1], k[:1], v[:1], beta[:1], log_alpha[:1], state)
    return torch.cat([out, q[1:] @ state]), state


@in_chunks.mistake(symptom=symptoms.LATER_TOKENS_WRONG)
def forgets_to_fade_the_state_before(q, k, v, beta, log_alpha, state, *, size):
    """The first chunk is right. In later ones what came before counts as much
    at the last token of the chunk as at the first.
    cause: The state before a chunk is read without the fading that its own
    tokens bring.
    fix: Multiply what token i finds in it by α₁ … αᵢ of the chunk."""
    outs = []
    for at in range(0, len(k), size):
        part = slice(at, at + size)
        total = log_alpha[part].cumsum(0)
        T = len(total)
        faded = (total[:, None] - total).masked_fill(
            torch.ones(T, T).triu(1).bool(), -torch.inf
        )
        decay = faded.exp()
        share = beta[part, None]
        system = torch.eye(T) + (share * (k[part] @ k[part].mT) * decay).tril(
            -1
        )
        wanted = share * (v[part] - k[part] @ state)  # not faded
        u = torch.linalg.solve(system, wanted)
        outs.append(q[part] @ state + (q[part] @ k[part].mT * decay) @ u)
        kept = total[-1].exp() * state
        state = kept + (k[part] * decay[-1, :, None]).mT @ u
    return torch.cat(outs), state


@task(
    against="a walk over all tokens and layers",
    cases={
        "one layer with keys": call(
            5, n_layers=1, every=1, n_heads=2, d=3, taps=4, size=4
        ),
        "one layer with a state": call(
            5, n_layers=1, every=2, n_heads=2, d=3, taps=4, size=4
        ),
        "one token": call(
            1, n_layers=4, every=4, n_heads=1, d=2, taps=4, size=2
        ),
        "one layer in four": call(
            100, n_layers=8, every=4, n_heads=4, d=16, taps=4, size=2
        ),
        "layers that four does not divide": call(
            1000, n_layers=10, every=4, n_heads=2, d=8, taps=2, size=4
        ),
        "no convolution": call(
            7, n_layers=3, every=3, n_heads=2, d=4, taps=1, size=8
        ),
        "one layer with keys in twenty": call(
            9, n_layers=20, every=12, n_heads=12, d=4, taps=4, size=2
        ),
        "two of forty layers, 17 heads of 130": call(
            131, n_layers=40, every=17, n_heads=17, d=130, taps=4, size=2
        ),
        "128 tokens, sixteen layers": call(
            128, n_layers=16, every=4, n_heads=16, d=64, taps=4, size=2
        ),
    },
)
def hybrid_bytes(n_tokens, *, n_layers, every, n_heads, d, taps, size):
    """the bytes that a hybrid keeps of a text of `n_tokens`: layers number
    `every`, 2 · `every` … (from 1) keep keys and values, the others a state
    of d · d numbers a head, and what queries, keys and values were before a
    convolution of `taps` taps at the last taps − 1 tokens; `size` bytes a
    number"""
    total = 0
    for layer in range(1, n_layers + 1):
        for _ in range(n_heads):
            if layer % every == 0:
                total += sum(2 * d for _ in range(n_tokens))
            else:
                total += sum(d for _ in range(d))
                total += sum(3 * d for _ in range(taps - 1))
    return total * size


def bytes_of(n_tokens, n_layers, every, n_heads, d, size, *, state, tail):
    """The bytes that a hybrid model keeps of one text.

    One block in `every` keeps keys and values of width d for each token; the
    other blocks keep `state` and `tail` numbers for each head. A number takes
    `size` bytes."""
    whole = n_layers // every
    numbers = whole * n_tokens * 2 * d + (n_layers - whole) * (state + tail)
    return n_heads * numbers * size


@hybrid_bytes.mistake(symptom=symptoms.WRONG_COUNT)
def keeps_a_state_for_each_token(
    n_tokens, *, n_layers, every, n_heads, d, taps, size
):
    """Far too much, and it grows with the text, which is what states are to
    prevent.
    cause: The state's bytes are counted once for each token.
    fix: A layer has one state for the whole text, however long it is.
    hint: How many states has a layer after ten tokens?"""
    tail = 3 * d * (taps - 1)
    sizes = {"state": d * d * n_tokens, "tail": tail}
    return bytes_of(n_tokens, n_layers, every, n_heads, d, size, **sizes)


@hybrid_bytes.mistake(symptom=symptoms.WRONG_COUNT)
def takes_the_state_for_a_vector(
    n_tokens, *, n_layers, every, n_heads, d, taps, size
):
    """Too little: a state of width 64 seems as small as a single token.
    cause: The state is counted as a vector of d numbers.
    fix: It is a matrix that turns keys into values: d · d numbers a head.
    hint: What does the state turn into what, and how many numbers does that
    take?"""
    sizes = {"state": d, "tail": 3 * d * (taps - 1)}
    return bytes_of(n_tokens, n_layers, every, n_heads, d, size, **sizes)


@hybrid_bytes.mistake(symptom=symptoms.WRONG_COUNT)
def forgets_the_tail_of_the_convolution(
    n_tokens, *, n_layers, every, n_heads, d, taps, size
):
    """A few thousand bytes too little, and right without a convolution.
    cause: The last tokens that the convolution has to see are not counted;
    whoever does not keep them reads the next part of the text wrongly.
    fix: Add 3 · d numbers a head for each of the last taps − 1 tokens.
    hint: What does the next token's convolution need besides the state?"""
    sizes = {"state": d * d, "tail": 0}
    return bytes_of(n_tokens, n_layers, every, n_heads, d, size, **sizes)


def _packed(T, starts, *, seed, d_k=3, d_v=2, fading=1):
    """Arguments for T tokens of several texts: queries, keys, values, β and
    log α as in `read`, and whether a text begins at each token, (T,). The
    places at which one begins are in `starts`."""
    fresh = torch.zeros(T, dtype=torch.bool)
    fresh[list(starts)] = True
    return *read(T, d_k, d_v, seed=seed, fading=fading)[:5], fresh


@task(
    against="each text by itself",
    cases={
        "one text": _packed(3, [0], seed=1, fading=500),
        "two texts": _packed(4, [0, 2], seed=10),
        "a text of one token": _packed(5, [0, 3, 4], seed=20),
        "three texts": _packed(9, [0, 2, 5], seed=30),
        "131 tokens of nineteen texts": _packed(
            131, range(0, 131, 7), seed=40
        ),
        "a state of 130 by 131": _packed(3, [0, 2], seed=50, d_k=130, d_v=131),
        "texts of 128, 64, 32, 16, 15 and 17 tokens": _packed(
            272, [0, 128, 192, 224, 240, 255], seed=60
        ),
    },
)
def packed_states(q, k, v, beta, log_alpha, fresh):
    """what each token reads, (T, d_v), under the gated delta rule, where
    several texts are one after the other and `fresh` (T,) is True at the
    first token of each: no text may read what another has written"""
    bounds = [*fresh.nonzero()[:, 0].tolist(), len(k)]
    outs = []
    for start, end in zip(bounds, bounds[1:]):
        part = (x[start:end] for x in (q, k, v, beta, log_alpha))
        empty = k.new_zeros(k.shape[1], v.shape[1])
        outs.append(loop(*part, empty)[0])
    return torch.cat(outs)


def over_texts(q, k, v, beta, log_alpha, fresh, *, late=False, part=1.0):
    """A loop in which a new text multiplies the state by 1 − `part`, before
    its first token, or, if `late`, after it."""
    S = k.new_zeros(k.shape[1], v.shape[1])
    out = []
    for t in range(len(k)):
        if fresh[t] and not late:
            S = (1 - part) * S
        S = log_alpha[t].exp() * S
        S = S + beta[t] * torch.outer(k[t], v[t] - k[t] @ S)
        out.append(q[t] @ S)
        if fresh[t] and late:
            S = torch.zeros_like(S)
    return torch.stack(out)


@packed_states.mistake(
    "THUDM/slime #1686, NVIDIA-NeMo/Automodel #2147",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def leaks_into_the_next_text(q, k, v, beta, log_alpha, fresh):
    """The first text of a row is right; each later one reads what the texts
    before it have written. The loss falls all the same.
    cause: Where the texts begin is told to attention or to the convolution,
    but not to the state.
    fix: Empty the state before the first token of each text.
    hint: What is in the state when the second text begins?"""
    return over_texts(q, k, v, beta, log_alpha, fresh, part=0.0)


@packed_states.mistake(symptom=symptoms.SEES_WRONG_TOKENS)
def empties_after_the_first_token(q, k, v, beta, log_alpha, fresh):
    """The first token of a text still reads the text before, and what it
    wrote itself is lost to its own text.
    cause: The state is emptied after the first token has been read.
    fix: Empty it first, then read the token.
    hint: Does the second token of a text find what the first has written?"""
    return over_texts(q, k, v, beta, log_alpha, fresh, late=True)


@packed_states.mistake(symptom=symptoms.SEES_WRONG_TOKENS)
def writes_nothing_at_a_start(q, k, v, beta, log_alpha, fresh):
    """The texts do not mix, but each has lost its first token.
    cause: At the first token of a text what is written is set to zero, too.
    fix: Only what came before is to go; the token itself is written.
    hint: Is the first token of a text in the state that the second finds?"""
    beta = beta.masked_fill(fresh, 0)
    return over_texts(q, k, v, beta, log_alpha, fresh)


def _padded(*rows, seed, d_k=3, d_v=2):
    """Arguments for a batch of texts: keys, values, β and log α as in
    `read`, stacked over the texts, and where their tokens are real, (B, T).
    Each text is given as a row of marks, "110" for two tokens and padding."""
    real = marks(*rows)
    T = real.shape[1]
    all_rows = [
        read(T, d_k, d_v, seed=seed + 10 * n) for n in range(len(rows))
    ]
    parts = [torch.stack([row[n] for row in all_rows]) for n in (1, 2, 3, 4)]
    return *parts, real


@task(
    against="each row by itself, without padding",
    cases={
        "no padding": _padded("11", seed=1),
        "padding on the right": _padded("110", seed=10),
        "two rows": _padded("1111", "1100", seed=20),
        "padding on the left": _padded("0111", "1111", seed=40),
        "a row of padding only": _padded("111", "000", seed=60),
        "padding in between": _padded("10110", "01011", seed=80),
        "17 rows, a state of 130 by 131": _padded(
            *["110", "011", "101"] * 5,
            "100",
            "001",
            seed=100,
            d_k=130,
            d_v=131,
        ),
        "131 tokens": _padded("1101011" * 18 + "10101", seed=270),
        "rows of 16, 32, 64 and 128, of 15 and 17": _padded(
            *("1" * n + "0" * (144 - n) for n in (16, 32, 64, 128, 15, 17)),
            seed=280,
        ),
    },
)
def state_of_padded(k, v, beta, log_alpha, real):
    """the state (B, d_k, d_v) of each row under the gated delta rule, from
    empty states, as if the padding, where `real` (B, T) is False, were not
    there; k (B, T, d_k), v (B, T, d_v), beta and log_alpha (B, T)"""
    states = []
    for row, keep in enumerate(real):
        state = k.new_zeros(k.shape[-1], v.shape[-1])
        if keep.any():
            part = (x[row, keep] for x in (k, v, beta, log_alpha))
            first, *rest = part
            state = loop(first, first, *rest, state)[1]
        states.append(state)
    return torch.stack(states)


def of_rows(k, v, beta, log_alpha):
    """The states (B, d_k, d_v) after a batch of texts, each by a loop of its
    own that begins with zeros."""
    zeros = k.new_zeros(k.shape[-1], v.shape[-1])
    rows = zip(k, v, beta, log_alpha)
    return torch.stack([loop(row[0], *row, zeros)[1] for row in rows])


@state_of_padded.mistake(
    "huggingface/transformers #48256, fla-org/flash-linear-attention #1272",
    symptom=symptoms.WRONG_IN_A_BATCH,
)
def fades_at_padding(k, v, beta, log_alpha, real):
    """Padding on the left is right, because an empty state cannot fade. On
    the right each padded token takes something of the state away, and a
    shorter row goes on worse.
    cause: Padding writes nothing, but its α is below 1 all the same.
    fix: At padding, log α is 0 as well.
    hint: Your padding writes nothing. Does it take something away?"""
    return of_rows(k, v, beta * real, log_alpha)


@state_of_padded.mistake(
    "huggingface/transformers #41790, huggingface/transformers #32677",
    symptom=symptoms.WRONG_IN_A_BATCH,
)
def writes_the_padding(k, v, beta, log_alpha, real):
    """The longest row of a batch is right, the others go on as if something
    else had been said.
    cause: A state has no scores that a mask could hide: what is read is
    written, padding too.
    fix: β is 0 at padding, and log α as well.
    hint: What is written at a token that is not real?"""
    return of_rows(k, v, beta, log_alpha)


@state_of_padded.mistake(symptom=symptoms.WRONG_IN_A_BATCH)
def takes_the_padding_for_an_end(k, v, beta, log_alpha, real):
    """Padding on the right is right. With padding on the left or in between
    the state is that of other tokens.
    cause: The real tokens are counted, and the first so many of the row are
    taken; but they need not be the first.
    fix: Let each token be real or not by itself.
    hint: Your padding is on the right. What if it is on the left?"""
    T = real.shape[1]
    first = torch.arange(T) < real.sum(-1, keepdim=True)
    return of_rows(k, v, beta * first, log_alpha * first)


def _after(d_k, d_v, beta, alpha, *, seed):
    """A state (d_k, d_v) after one token was written into it, and what wrote
    it: the key (d_k,) of length 1, the value (d_v,), β and α."""
    before = randn(d_k, d_v, seed=seed)
    k = F.normalize(randn(d_k, seed=seed + 1), dim=0)
    v = randn(d_v, seed=seed + 2)
    faded = alpha * before
    after = faded + beta * torch.outer(k, v - k @ faded)
    return after, k, v, f64(beta)[0], f64(alpha)[0]


_UNDO = {
    "nothing fades": _after(2, 2, 0.5, 1.0, seed=1),
    "half is written, half is kept": _after(2, 2, 0.5, 0.5, seed=10),
    "nothing is written": _after(2, 3, 0.0, 0.8, seed=20),
    "nearly all is replaced": _after(3, 2, 0.9, 0.9, seed=30),
    "more than all": _after(3, 2, 1.5, 0.7, seed=40),
    "eight by four": _after(8, 4, 0.3, 0.95, seed=50),
    "130 by 131": _after(130, 131, 0.4, 0.9, seed=60),
}


@task(against="a linear system for the state before", cases=_UNDO)
def undo(state, k, v, beta, alpha):
    """the state (d_k, d_v) before a token was read, from the state after it;
    its key k (d_k,) has length 1, and β is not 1 and α not 0"""
    key = k[:, None]
    moved = alpha * (torch.eye(len(k), dtype=k.dtype) - beta * key @ key.mT)
    return torch.linalg.solve(moved, state - beta * torch.outer(k, v))


@undo.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_off_what_was_not_written(state, k, v, beta, alpha):
    """Right only for a token that has written nothing.
    cause: β v is taken off, as if the value had been written. It was the
    error, and that is smaller by what the state held.
    fix: Find out what the state held at the key, and take off β times the
    error.
    hint: Was it the value that the token has written, or what was lacking?"""
    return (state - beta * torch.outer(k, v)) / alpha


@undo.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_the_error_of_the_state_after(state, k, v, beta, alpha):
    """Nearly right for small β, and much too little for large ones.
    cause: The error is taken at the state after the token. Most of it has
    been mended there: a share 1 − β is left.
    fix: Divide that error by 1 − β: then it is the one that was written.
    hint: How large is the error at this key once the token was read?"""
    error = v - k @ state
    return (state - beta * torch.outer(k, error)) / alpha


@undo.mistake(symptom=symptoms.WRONG_NUMBERS)
def leaves_it_faded(state, k, v, beta, alpha):
    """Right where nothing fades; else too small by a factor α.
    cause: What was written is taken off, but the fading before it is not
    undone.
    fix: Divide by α at the end.
    hint: What did the token do to the state before it wrote?"""
    error = (v - k @ state) / (1 - beta)
    return state - beta * torch.outer(k, error)
