"""Chapter 24, many hands: tasks and known mistakes."""

import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, marks, randns
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(24)

_LOSSES = {
    "one rank": (f64([2, 4]), marks("11")),
    "two ranks alike": (f64([1, 3], [5, 0]), marks("11", "11")),
    "three targets and one": (
        f64([2, 2, 2], [6, 1, 1]),
        marks("111", "100"),
    ),
    "a rank without targets": (randn(2, 3, seed=1), marks("110", "000")),
    "four ranks": (
        randn(4, 5, seed=2),
        marks("11111", "10000", "00110", "01110"),
    ),
    "17 ranks": (
        randn(17, 3, seed=6),
        marks(*["110", "011", "100"] * 5, "000", "111"),
    ),
    "131 targets a rank": (
        randn(2, 131, seed=7),
        marks("1" * 131, "1" * 60 + "0" * 71),
    ),
}


@task(
    against="the mean over one long list",
    cases=_LOSSES,
    gradients=True,
)
def ddp_losses(losses, real):
    """what each of N ranks has to go back from, (N,), when the ranks'
    gradients are averaged afterwards, as DDP does it: the average has to be
    the gradient of the mean loss over all real targets of all ranks; losses
    (N, T), and `real` (N, T) is False at padding"""
    listed = [
        (rank, loss)
        for rank, (row, keep) in enumerate(zip(losses, real))
        for loss in row[keep]
    ]
    out = [losses.new_zeros(()) for _ in losses]
    for rank, loss in listed:
        out[rank] = out[rank] + loss * len(losses) / len(listed)
    return torch.stack(out)


@ddp_losses.mistake(
    "pytorch/torchtitan #2206, PrimeIntellect-ai/prime-rl #2562, "
    "huggingface/transformers #34242",
    symptom=symptoms.OTHER_SCORE,
)
def takes_the_mean_of_its_own(losses, real):
    """Right while all ranks have equally many targets. Otherwise a target in
    a rank that has few of them counts more than one in a rank that has many,
    and a rank that has none gives NaN.
    cause: Each rank divides by the number of its own targets, and the average
    over the ranks is a mean of means.
    fix: Add up the counts of all ranks first, and divide by that in each.
    hint: One rank has three targets and another has one. How much does each
    target count?"""
    counts = real.sum(-1)
    return (losses * real).sum(-1) / counts


@ddp_losses.mistake(
    "meta-pytorch/torchtune #2172, pytorch/torchtitan #2323",
    symptom=symptoms.OTHER_SCORE,
)
def forgets_that_gradients_are_averaged(losses, real):
    """Right on one rank. On N ranks every gradient is N times too small, and
    more ranks make it worse; clipping and Adam hide it.
    cause: Each rank's share is divided by the number of all targets, and then
    DDP divides by the number of ranks once more.
    fix: Multiply each share by the number of ranks, or add the gradients up
    instead of averaging them.
    hint: What does DDP do with the gradients of N ranks?"""
    return (losses * real).sum(-1) / real.sum()


@ddp_losses.mistake(symptom=symptoms.OTHER_SCORE)
def counts_the_padding(losses, real):
    """Too small wherever there is padding, and more so in batches that have
    much of it.
    cause: The sum is over real targets, but it is divided by all places.
    fix: Count the real targets of all ranks.
    hint: By how many numbers do you divide, and how many did you add?"""
    return len(losses) * (losses * real).sum(-1) / real.numel()


_PARTS = {
    "short enough": (f64([0.25, 0.5]), 1.0),
    "one rank": (f64([3, 4]), 1.0),
    "two ranks": (f64([3], [4]), 1.0),
    "a rank of zeros": (f64([0, 0], [3, 4]), 2.0),
    "two ranks, one of them short": (f64([0.3, 0.4], [6, 8]), 1.0),
    "four ranks": (randn(4, 3, seed=3), 0.5),
    "only together too long": (f64([0.6, 0.6], [0.6, 0.6]), 1.0),
    "together short enough": (f64([0.4, 0.4], [0.4, 0.4]), 1.0),
    "17 ranks, 131 numbers each": (randn(17, 131, seed=4), 0.5),
}


@task(against="one long vector", cases=_PARTS)
def clipped(parts, limit):
    """the parts (N, n) of one gradient, of which each of N ranks has a row,
    shortened so that the whole gradient has the length `limit`, if it was
    longer, and as they are otherwise"""
    whole = torch.cat(list(parts))
    length = whole.dot(whole).sqrt()
    if length <= limit:
        return parts.clone()
    return torch.stack([row / length * limit for row in parts])


@clipped.mistake(
    "pytorch/pytorch #72548", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def shortens_each_part_by_itself(parts, limit):
    """Right on one rank. On several each rank shortens by its own length, so
    the gradient points somewhere else, and is up to √N times too long.
    cause: `clip_grad_norm_` is called on what this rank has, which is a part
    of the gradient.
    fix: Add up the squares over all ranks, take the root, and shorten all
    parts by the same factor.
    hint: Do all ranks multiply by the same number?"""
    own = parts.norm(dim=-1, keepdim=True)
    return parts * (limit / own.clamp(min=1e-12)).clamp(max=1)


@clipped.mistake(symptom=symptoms.WRONG_IN_THE_NEXT_CASE)
def adds_up_the_lengths(parts, limit):
    """The gradient is shortened too much, up to √N times, and also where it
    would have been short enough.
    cause: The ranks' lengths are added up. Lengths do not add up; their
    squares do.
    fix: Add up the squares and take the root of the sum.
    hint: Two ranks have 3 and 4. How long is the gradient?"""
    length = parts.norm(dim=-1).sum()
    return parts * (limit / length).clamp(max=1)


@clipped.mistake(
    "ByteDance-Seed/VeOmni #184, pytorch/pytorch #88955, NVIDIA-NeMo/RL #3788",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def counts_it_once_for_each_rank(parts, limit):
    """Right on one rank. With copies of the weights in N ranks the length
    that is reported grows with √N, and the gradient is shortened too much.
    cause: Squares are added up over ranks that have the same numbers.
    fix: Add up over the ranks that have different parts, and over no others.
    hint: How often does each number of the gradient count in your sum?"""
    length = parts.norm() * len(parts) ** 0.5
    return parts * (limit / length).clamp(max=1)


_SAME = f64([1, -2], [1, -2], [1, -2])
_SHARES = f64([1, 2], [3, 4], [10, 20])

_GRADIENTS = {
    "one rank, replicated": (f64([1, 2, 3]), "replicated"),
    "replicated": (_SAME, "replicated"),
    "copied": (_SHARES, "copied"),
    "partial": (_SAME, "partial"),
    "sharded": (_SHARES, "sharded"),
    "copied, two ranks": (randn(2, 3, seed=4), "copied"),
    "copied, 17 ranks of 131 numbers": (randn(17, 131, seed=5), "copied"),
    "sharded, 17 ranks of 131 numbers": (randn(17, 131, seed=6), "sharded"),
}


@task(
    against="a rule for each type",
    cases=_GRADIENTS,
)
def whole_gradient(parts, kind):
    """the gradient (n,), or (N · n,) of a sharded one, that a single process
    finds for a tensor, told from what each of N ranks has found, (N, n);
    `kind` says how the ranks have the tensor: "replicated", "copied",
    "partial" or "sharded" """
    rows = list(parts)
    if kind == "sharded":
        return torch.cat(rows)
    if kind == "copied":
        return sum(rows[1:], rows[0])
    return rows[-1]


@whole_gradient.mistake(
    "pytorch/torchtitan #2416, NVIDIA-NeMo/Automodel #1260, "
    "pytorch/torchtitan #4054",
    symptom=symptoms.WRONG_GRADIENTS,
)
def takes_the_share_of_one_copy(parts, kind):
    """The loss is right. Each rank steps with its own share of the gradient,
    so the copies drift apart, or all learn from one rank's work alone.
    cause: A gradient of which each rank has a share is taken for one that all
    ranks have.
    fix: Add up the shares of what was copied.
    hint: Each rank has used its copy for other tokens, or other experts. Who
    has seen all of the gradient?"""
    if kind == "sharded":
        return parts.flatten()
    return parts[0]


@whole_gradient.mistake(symptom=symptoms.WRONG_GRADIENTS)
def adds_up_what_all_have(parts, kind):
    """The loss is right, and some gradients are N times too large.
    cause: All ranks have done the same with this tensor, so each has the
    whole gradient already; adding them up counts it N times.
    fix: Take the gradient of one rank, whichever it is.
    hint: All ranks have computed the same. How many times does the gradient
    count in your sum?"""
    if kind == "sharded":
        return parts.flatten()
    return parts[0] if kind == "partial" else parts.sum(0)


@whole_gradient.mistake(
    "pytorch/torchtitan #2106", symptom=symptoms.WRONG_GRADIENTS
)
def adds_up_the_gradient_of_a_summand(parts, kind):
    """The loss is right, and the gradient of what was to be added up is N
    times too large.
    cause: The values are summands, and their gradients are taken for summands
    too. But each summand has the gradient of the whole sum.
    fix: Take the gradient that one rank has found, and do not add.
    hint: y = a + b. What is the gradient of a, if that of y is known?"""
    if kind == "sharded":
        return parts.flatten()
    return parts.sum(0) if kind in ("partial", "copied") else parts[0]


@whole_gradient.mistake(
    "pytorch/torchtitan #2323", symptom=symptoms.WRONG_GRADIENTS
)
def takes_the_mean_of_the_shares(parts, kind):
    """The loss is right, and what was copied learns N times too slowly.
    cause: The shares of a gradient are averaged, or each was divided by N
    before.
    fix: Shares add up; their mean is a gradient N times too small.
    hint: Three ranks have found 1, 3 and 10 of one gradient. How large is
    it?"""
    if kind == "sharded":
        return parts.flatten()
    return parts.mean(0)


def _text(T, *, sizes, seed, d_k=3, d_v=2, by=1):
    """A sequence that is dealt out: queries, keys, values, and the sizes. The
    queries are multiplied by `by`."""
    q, k, v = randns((T, d_k), (T, d_k), (T, d_v), seed=seed)
    return call(q * by, k, v, sizes=sizes)


_RINGS = {
    "one rank": _text(3, sizes=(3,), seed=1),
    "two ranks, a token each": _text(2, sizes=(1, 1), seed=10),
    "two ranks": _text(4, sizes=(2, 2), seed=20),
    "one token and four": _text(5, sizes=(1, 4), seed=30),
    "three ranks": _text(7, sizes=(3, 1, 3), seed=40),
    "four ranks, eleven tokens": _text(11, sizes=(1, 5, 2, 3), seed=70),
    "three ranks, large scores": _text(5, sizes=(1, 2, 2), seed=51, by=2e5),
    "two ranks, all scores below −10⁹": call(
        f64([2**16], [2**16], [2**16]),
        -(2**15) * f64([1], [1.5], [2]),
        f64([1], [2], [4]),
        sizes=(2, 1),
    ),
    "17 ranks": _text(43, sizes=(*(2, 3) * 8, 3), seed=80),
    "131 tokens on two ranks, 130 wide": _text(
        131, sizes=(130, 1), seed=90, d_k=130, d_v=131
    ),
    "ranks of 128, 64, 32, 16, 15 and 17 tokens": _text(
        272, sizes=(128, 64, 32, 16, 15, 17), seed=97
    ),
}


@task(
    against="softmax over all keys at once",
    cases=_RINGS,
    gradients=True,
)
def ring(q, k, v, *, sizes):
    """causal attention (T, d_v) of q, k (T, d_k) and v (T, d_v), computed
    block by block: rank r has `sizes[r]` of the tokens, in their order, and
    for its queries it merges what the blocks of all ranks contribute"""
    scores = q @ k.T / q.shape[-1] ** 0.5
    later = torch.ones_like(scores).triu(1) > 0
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


def blocks(sizes):
    """The first token of each rank, and the token after its last."""
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return list(zip(bounds, bounds[1:]))


def seen(q, k, v, hidden):
    """Attention with a mask; a row that sees nothing gives zeros."""
    scores = (q @ k.T / q.shape[-1] ** 0.5).masked_fill(hidden, -1e300)
    return scores.softmax(-1) @ v


@ring.mistake(
    "zhuzilin/ring-flash-attention #54", symptom=symptoms.SEES_WRONG_TOKENS
)
def counts_places_from_each_block(q, k, v, *, sizes):
    """Right on one rank. On several a token misses earlier tokens of other
    ranks, those that are further back in their block than it is in its own.
    cause: The causal mask of each pair of blocks counts from the beginning of
    the blocks, as if both began at token 0.
    fix: Compare the places that the tokens have in the whole sequence.
    hint: Which place has the first token of the second rank?"""
    place = torch.cat([torch.arange(size) for size in sizes])
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    hidden = (place > place[:, None]) | (owner > owner[:, None])
    return seen(q, k, v, hidden)


@ring.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_the_mean_of_the_blocks(q, k, v, *, sizes):
    """Right as long as a query sees one block. Else each block counts the
    same, whether its keys fit the query or not.
    cause: Each block's context is divided by its own sum of exponentials, and
    these contexts are averaged.
    fix: Merge with the blocks' peaks and totals: a block counts as much as
    its exponentials sum to.
    hint: Block one has a key that fits well, block two has none. How much
    should each count?"""
    T = len(q)
    found = torch.zeros(T, v.shape[1], dtype=v.dtype)
    counts = torch.zeros(T, 1, dtype=v.dtype)
    for start, end in blocks(sizes):
        part = torch.arange(start, end)
        hidden = part > torch.arange(T)[:, None]
        some = (~hidden).any(-1, keepdim=True)
        found = found + seen(q, k[part], v[part], hidden) * some
        counts = counts + some
    return found / counts


@ring.mistake("huggingface/diffusers #14265", symptom=symptoms.WRONG_GRADIENTS)
def goes_back_with_its_own_keys(q, k, v, *, sizes):
    """The context is right, and so is the loss. The gradients are right only
    if there is a single rank.
    cause: On the way there the blocks travel. On the way back each round
    computes with the keys that were saved in the first one: the rank's own.
    fix: On the way back the blocks have to travel as well, or be kept.
    hint: With which keys does each round go back?"""
    T = len(q)
    hidden = torch.ones(T, T).triu(1) > 0
    right = seen(q, k, v, hidden)
    wrong = []
    for start, end in blocks(sizes):
        own = torch.arange(start, end)
        keys = torch.cat([own] * len(sizes))
        masked = keys > own[:, None]
        wrong.append(seen(q[own], k[keys], v[keys], masked))
    wrong = torch.cat(wrong)
    return wrong + (right - wrong).detach()


def _layer(d, f, *, sizes, seed, T=2):
    """A feed-forward layer that is dealt out, with its tokens."""
    inputs = randns((T, d), (d, f), (f, d), (d,), seed=seed)
    return call(*inputs, sizes=sizes)


_LAYERS = {
    "one rank": _layer(2, 3, sizes=(3,), seed=1),
    "two ranks alike": _layer(2, 4, sizes=(2, 2), seed=10),
    "one number and three": _layer(2, 4, sizes=(1, 3), seed=20),
    "three ranks": _layer(3, 8, sizes=(3, 3, 2), seed=30),
    "17 ranks, all wider than 128": _layer(
        130, 137, sizes=(8,) * 16 + (9,), seed=40, T=131
    ),
}


@task(
    against="one process",
    cases=_LAYERS,
    gradients=True,
)
def feed_forward_on_ranks(x, up, down, bias, *, sizes):
    """tanh(x @ up) @ down + bias (T, d), computed rank by rank: rank r has
    `sizes[r]` of the columns of up (d, f) and the same rows of down (f, d),
    and what the ranks have is added up; x (T, d), bias (d,)"""
    return torch.tanh(x @ up) @ down + bias


@feed_forward_on_ranks.mistake(
    "Wenyueh/MinivLLM #80, huggingface/text-generation-inference #1036, "
    "pytorch/torchtitan #4245",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def adds_the_bias_in_every_rank(x, up, down, bias, *, sizes):
    """Right on one rank, and right without a bias. On N ranks the bias counts
    N times.
    cause: Each rank adds the bias to its part, and then the parts are added
    up.
    fix: Add the bias once, after the sum."""
    parts = zip(up.split(sizes, 1), down.split(sizes))
    return sum(torch.tanh(x @ u) @ d + bias for u, d in parts)


@feed_forward_on_ranks.mistake(symptom=symptoms.SIZES)
def gives_all_ranks_as_many(x, up, down, bias, *, sizes):
    """Right if the ranks divide the inner numbers. Else the last ones belong
    to nobody and are missing.
    cause: Each rank takes f // N columns.
    fix: Give some ranks one more, or refuse sizes that do not divide."""
    each = up.shape[1] // len(sizes)
    kept = each * len(sizes)
    return torch.tanh(x @ up[:, :kept]) @ down[:kept] + bias


@feed_forward_on_ranks.mistake(
    "vllm-project/vllm-ascend #14345", symptom=symptoms.WRONG_NUMBERS
)
def bends_before_the_sum(x, up, down, bias, *, sizes):
    """Right on one rank, and close to right where tanh hardly bends.
    cause: Each rank has only a summand of the inner numbers, because the
    first matrix is cut by rows, or because they are added up too late. And
    the function of a sum is not the sum of the function.
    fix: Cut the first matrix by columns: then each rank has whole inner
    numbers. Or add up before the function."""
    cuts = x.tensor_split(len(sizes), 1), up.tensor_split(len(sizes))
    inner = sum(torch.tanh(a @ u) for a, u in zip(*cuts))
    return inner @ down + bias


def _routed(T, E, k, real, *, seed):
    """Choices and probabilities of T tokens, and which of them are real."""
    probabilities = randn(T, E, seed=seed).softmax(-1)
    chosen = probabilities.topk(k, -1).indices
    return chosen, probabilities, marks(real)[0]


_BALANCES = {
    "two experts, evenly": (
        torch.tensor([[0], [1]]),
        f64([0.75, 0.25], [0.25, 0.75]),
        marks("11")[0],
    ),
    "all to one": (
        torch.tensor([[0], [0]]),
        f64([0.75, 0.25], [0.5, 0.5]),
        marks("11")[0],
    ),
    "padding": _routed(4, 2, 1, "1101", seed=1),
    "two of three, with padding": _routed(6, 3, 2, "101101", seed=3),
    "not the likeliest": (
        torch.tensor([[1], [0], [2]]),
        f64([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]),
        marks("111")[0],
    ),
    "two of 300": _routed(5, 300, 2, "11111", seed=2),
    "17 of 20, 131 tokens": _routed(
        131, 20, 17, "1101011" * 18 + "10101", seed=5
    ),
}


@task(
    against="a walk over tokens and experts",
    cases=_BALANCES,
    gradients=True,
)
def balance(chosen, probabilities, real):
    """how unevenly experts are used, as a tensor without axes: E times the
    sum over the experts of the share of choices that went to one, and its
    mean probability; only tokens where `real` (T,) is True count; chosen
    (T, k), probabilities (T, E)"""
    rows = [t for t in range(len(chosen)) if real[t]]
    n_experts = probabilities.shape[1]
    found = probabilities.new_zeros(())
    for expert in range(n_experts):
        mean = sum(probabilities[t, expert] for t in rows) / len(rows)
        asked = [e for t in rows for e in chosen[t].tolist()]
        found = found + n_experts * asked.count(expert) / len(asked) * mean
    return found


@balance.mistake(
    "huggingface/transformers #28505, NVIDIA/Megatron-LM #2121",
    symptom=symptoms.WRONG_IN_A_BATCH,
)
def balances_the_padding(chosen, probabilities, real):
    """Right without padding. With it the experts that padding goes to seem
    crowded, and real tokens are pushed away from them.
    cause: Padding is routed like any token, and counts like one.
    fix: Leave padding out of the choices and of the mean probabilities."""
    return balance(chosen, probabilities, torch.ones_like(real))


@balance.mistake(symptom=symptoms.OTHER_SCORE)
def takes_no_count(chosen, probabilities, real):
    """About 1 even where one expert gets all: probabilities can be nearly
    even while every token prefers the same expert by a little.
    cause: The mean probability is taken for the share of the choices.
    fix: Count the choices; multiply the counts by the mean probabilities."""
    mean = probabilities[real].mean(0)
    return len(mean) * (mean * mean).sum()


@balance.mistake(symptom=symptoms.OTHER_SCORE)
def forgets_the_number_of_experts(chosen, probabilities, real):
    """1/E where all get the same, so its size, and what a factor before it
    means, depends on how many experts there are.
    cause: The factor E is missing.
    fix: Multiply by the number of experts: then 1 is even for any number."""
    return balance(chosen, probabilities, real) / probabilities.shape[1]


def _mixed(T, E, k, *, seed, d=3, f=2):
    """A mixture of E experts, with its tokens."""
    return (*randns((T, d), (d, E), (E, d, f), (E, f, d), seed=seed), k)


_MIXTURES = {
    "one token, two experts": _mixed(1, 2, 2, seed=1),
    "one of two": _mixed(3, 2, 1, seed=10),
    "two of three": _mixed(4, 3, 2, seed=20),
    "all of four": _mixed(3, 4, 4, seed=30),
    "17 of 20": _mixed(3, 20, 17, seed=40),
    "131 tokens, 130 wide": _mixed(131, 2, 1, seed=50, d=130, f=131),
}


def gelu(x):
    """The gelu with tanh, from its formula."""
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    return x * (1 + torch.tanh(inner)) / 2


@task(
    against="a walk over tokens",
    home="experts.dense_mixture",
    cases=_MIXTURES,
    gradients=True,
)
def mixture(x, router, up, down, k):
    """(T, d): each token of x (T, d) gets the results gelu(token @ up[e]) @
    down[e] of the k experts e with its highest probabilities, weighted by
    these, which are divided by their sum; router (d, E), up (E, d, f), down
    (E, f, d), and the gelu with tanh"""
    rows = []
    for token in x:
        chances = (token @ router).softmax(-1)
        best = sorted(range(len(up)), key=lambda e: -chances[e].item())[:k]
        whole = sum(chances[e] for e in best)
        rows.append(
            sum(
                chances[e] / whole * (gelu(token @ up[e]) @ down[e])
                for e in best
            )
        )
    return torch.stack(rows)


def gated(x, gates, up, down):
    """All experts, weighted by gates (T, E)."""
    inner = gelu(torch.einsum("td,edf->etf", x, up))
    return torch.einsum("te,etf,efd->td", gates, inner, down)


def chosen_only(chances, k, axis=-1):
    """Probabilities with all but the k highest along an axis set to 0."""
    k = min(k, chances.shape[axis])
    best = chances.topk(k, axis).indices
    return chances * torch.zeros_like(chances).scatter(axis, best, 1)


@mixture.mistake(symptom=symptoms.WRONG_NUMBERS)
def leaves_the_weights_as_they_are(x, router, up, down, k):
    """Right if all experts are chosen. Else the layer gives less than it
    should, the less the more evenly the router chooses.
    cause: The probabilities of the chosen experts are used as they are; they
    do not sum to one.
    fix: Divide them by their sum (if the model was trained so: `norm_topk`
    in its configuration)."""
    return gated(x, chosen_only((x @ router).softmax(-1), k), up, down)


@mixture.mistake(
    "huggingface/transformers #48205, pytorch/torchtitan #2416",
    symptom=symptoms.WRONG_GRADIENTS,
)
def learns_from_one_ranks_experts(x, router, up, down, k):
    """The result and the loss are right. The router learns from a part of the
    experts only.
    cause: The experts are dealt out among ranks, and each rank finds the
    router's gradient for its own experts. Nobody adds these up.
    fix: Make the router's weights, or its probabilities, copied before they
    are used: then an all-reduce adds the gradients up."""
    chances = (x @ router).softmax(-1)
    gates = chosen_only(chances, k)
    gates = gates / gates.sum(-1, keepdim=True)
    held = -(-len(up) // 2)  # by the first of two ranks
    gates = torch.cat([gates[:, :held], gates[:, held:].detach()], 1)
    return gated(x, gates, up, down)


@mixture.mistake(symptom=symptoms.WRONG_IN_A_BATCH)
def compares_tokens_with_each_other(x, router, up, down, k):
    """A token alone gets something else than in a batch.
    cause: The softmax is over the tokens, so the experts choose among tokens,
    and not the tokens among experts.
    fix: Take the softmax over the experts, the last axis."""
    gates = chosen_only((x @ router).softmax(0), k)
    return gated(x, gates / gates.sum(-1, keepdim=True), up, down)
