"""Chapter 20, guess ahead: tasks and known mistakes."""

import itertools

import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints
from attnbook.teach.check.seeded import randn

task = tasks_of(20)


def _shares(*size, seed):
    """Probabilities, drawn from a seed, along the last axis."""
    return (2 * randn(*size, seed=seed)).softmax(-1)


_P, _Q = f64(0.5, 0.25, 0.25), f64(0.25, 0.625, 0.125)


@task(
    against="a loop over numbers",
    home="speculative.residual",
    cases={
        "two above, one below": (_P, _Q),
        "one above, by little": (f64(0.5, 0.5), f64(0.50001, 0.49999)),
        "a sure draft": (f64(0.3, 0.6, 0.1), f64(0.0, 1.0, 0.0)),
        "one that cannot come": (f64(0.5, 0.0, 0.5), f64(0.1, 0.8, 0.1)),
        "both the same": (_P, _P),
        "nine tokens": (_shares(9, seed=1), _shares(9, seed=2)),
        "300 tokens": (_shares(300, seed=7), _shares(300, seed=8)),
    },
)
def residual(p, q):
    """what the token comes from after a guess drawn from q (V,) was refused:
    the part of p (V,) that is above q, as probabilities; p where none is"""
    above = [max(a - b, 0.0) for a, b in zip(p.tolist(), q.tolist())]
    if not any(above):
        return p
    return torch.tensor([a / sum(above) for a in above], dtype=p.dtype)


@residual.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def draws_from_the_target_again(p, q):
    """The text is fluent, and some words come too often: what the draft
    likes is offered twice.
    cause: After a refusal the token is drawn from p. But p's share of the
    guesses that were kept has been given out already.
    fix: Draw from what is left of p, max(0, p − q), divided by its sum."""
    return p


@residual.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def takes_the_distance(p, q):
    """Words that the draft overrates are written too often, even some that
    the model would not write.
    cause: The absolute difference counts where q is above p, too.
    fix: Only what p has above q is left to be given: max(0, p − q)."""
    gap = (p - q).abs()
    return gap / gap.sum() if gap.sum() > 0 else p


@residual.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def takes_the_refused_one_out_alone(p, q):
    """With a draft that is sure of one token all is right; with one that
    spreads its guesses the distribution is off.
    cause: The likeliest guess is taken out of p and the rest divided by its
    sum. That is max(0, p − q) only where q is 1 at one token.
    fix: Subtract q everywhere, not at one token alone."""
    rest = p.clone()
    rest[q.argmax()] = 0
    return rest / rest.sum() if rest.sum() > 0 else p


def left_of(p, q):
    """The distribution that is drawn from after a refused guess.

    It is what p has more than q, divided by its sum.
    """
    above = (p - q).clamp(min=0)
    return above / above.sum() if above.sum() > 0 else p


def keeps(pick, share):
    """Whether a guess that is kept with this probability is kept now."""
    return pick(torch.stack([1 - share, share]))


def keep_or_draw(p, q, guesses, pick):
    """The guesses that the target keeps, and one token of its own.

    Args:
        p: the target's probabilities after each guess, (guesses + 1, V).
        q: the draft's, (guesses, V).
        guesses: the tokens that the draft has guessed.
        pick: draws an index by its probabilities.
    """
    for n, guess in enumerate(guesses):
        share = (p[n, guess] / q[n, guess]).clamp(max=1)
        if not keeps(pick, share):
            return [*guesses[:n], pick(left_of(p[n], q[n]))]
    return [*guesses, pick(p[len(guesses)])]


def law_of(p, *, drawn_from, kept_by, verify=keep_or_draw):
    """The law of a call: what it can give, each with its probability.

    Every way in which its draws may turn out is gone through once.

    Args:
        p: the model's probabilities, (guesses + 1, V).
        drawn_from: the probabilities with which the guesses are drawn,
            (guesses, V).
        kept_by: those that `verify` is told to be the draft's, (guesses, V).
            They are the same, unless a mistake is shown.
        verify: the rule that keeps guesses and refuses them.
    """
    ways = [[]]
    law = {}
    while ways:
        way = ways.pop()
        chances = []

        def pick(shares, way=way, chances=chances):
            if len(chances) == len(way):
                first, *others = [
                    n for n, share in enumerate(shares.tolist()) if share > 0
                ]
                ways.extend([*way, other] for other in others)
                way.append(first)
            chances.append(shares[way[len(chances)]].item())
            return way[len(chances) - 1]

        guesses = [pick(each) for each in drawn_from]
        rows = p[: len(guesses) + 1]
        written = tuple(verify(rows, kept_by, guesses, pick))
        total = 1.0
        for chance in chances:
            total *= chance
        law[written] = law.get(written, 0.0) + total
    return law


def what_can_come(law):
    """A law without what has probability 0, which it may list or not."""
    if not isinstance(law, dict):
        return law
    return {
        tokens: chance
        for tokens, chance in law.items()
        if not isinstance(chance, (int, float)) or chance != 0
    }


_THREE = f64([0.5, 0.25, 0.25], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4])
_DRAFT = f64([0.25, 0.625, 0.125], [0.5, 0.25, 0.25])


def _surely(k, V):
    """A draft of k guesses that is always sure of the token V − 1."""
    return torch.eye(V, dtype=torch.float64)[[V - 1] * k]


def _nearly(k, V):
    """A model of k places that gives the last token 0.9, the first 0.1."""
    return 0.9 * _surely(k, V) + 0.1 * _surely(k, V).flip(-1)


@task(
    against="the formula for all outcomes",
    read=what_can_come,
    cases={
        "no guess": (_THREE[:1], _DRAFT[:0]),
        "one guess": (_THREE[:2], _DRAFT[:1]),
        "two guesses": (_THREE, _DRAFT),
        "a draft that is the model": (_THREE, _THREE[:2]),
        "a sure draft": (_THREE[:2], f64([0.0, 1.0, 0.0])),
        "what cannot come": (
            f64([0.5, 0.5, 0.0], [0.2, 0.3, 0.5]),
            f64([0.25, 0.25, 0.5]),
        ),
        "five guesses": (_shares(6, 2, seed=9), _shares(5, 2, seed=10)),
        "nine sure guesses of 131 tokens": (
            _nearly(10, 131),
            _surely(9, 131),
        ),
    },
)
def law_of_a_call(p, q):
    """the probability of each list of tokens that one call can give, as a
    dict from tuples, from the model's probabilities (k + 1, V) and the
    draft's (k, V)"""
    law = {}
    shares = {(): 1.0}  # of the guesses that are kept so far
    last_row = [0.0] * p.shape[-1]
    for model, draft in zip(p.tolist(), [*q.tolist(), last_row]):
        further = {}
        for kept, share in shares.items():
            for token, (own, guessed) in enumerate(zip(model, draft)):
                if own > guessed:
                    law[*kept, token] = share * (own - guessed)
                both = min(own, guessed)
                if both > 0:
                    further[*kept, token] = share * both
        shares = further
    return law


@law_of_a_call.mistake(
    "lablup/mlxcel #902", symptom=symptoms.GUESSES_CHANGE_TEXT
)
def keeps_the_likeliest_alone(p, q):
    """The temperature seems to do little: with guesses the text is nearly the
    greedy one, without them it is not.
    cause: A guess is kept where it is the model's likeliest token, whatever
    the temperature. That is right at temperature 0 alone.
    fix: Keep a guess with probability min(1, p / q)."""

    def verify(p, q, guesses, pick):
        for n, guess in enumerate(guesses):
            if guess != p[n].argmax():
                return [*guesses[:n], pick(p[n])]
        return [*guesses, pick(p[len(guesses)])]

    return law_of(p, drawn_from=q, kept_by=q, verify=verify)


@law_of_a_call.mistake(
    "ohdearquant/lattice #388", symptom=symptoms.GUESSES_CHANGE_TEXT
)
def tells_another_draft_than_it_drew_from(p, q):
    """Each part is right when it is tested alone. Together they write some
    tokens too often.
    cause: The guess is drawn at one temperature, and the q by which it is
    kept or refused is computed at another.
    fix: Compare with the very probabilities that the guess was drawn from."""
    told = (2 * q.log()).softmax(-1)
    return law_of(p, drawn_from=q, kept_by=told)


@law_of_a_call.mistake(
    "jaymody/speculative-sampling #3, apple/ml-recurrent-drafter #6",
    symptom=symptoms.GUESSES_CHANGE_TEXT,
)
def guesses_the_likeliest_and_tells_the_softmax(p, q):
    """The draft's favourite comes too often. Where the model chooses greedily
    and its softmax is compared too, the text is not the greedy one.
    cause: The guess is the draft's likeliest token, or the best of a beam
    search, and is kept or refused as if it had been drawn from q.
    fix: Draw the guess from q, or tell the q that it really comes from: 1 at
    one token."""
    best = q.argmax(-1)
    sure = torch.zeros_like(q).scatter(-1, best[:, None], 1.0)
    return law_of(p, drawn_from=sure, kept_by=q)


@law_of_a_call.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def forgets_the_free_token(p, q):
    """The text is right, and it takes more calls than it should: a perfect
    draft of two words gives two words a call, not three.
    cause: When all guesses are kept, the call's last row of probabilities is
    thrown away.
    fix: Draw one more token from it: it has been paid for."""

    def verify(p, q, guesses, pick):
        for n, guess in enumerate(guesses):
            share = (p[n, guess] / q[n, guess]).clamp(max=1)
            if not keeps(pick, share):
                return [*guesses[:n], pick(left_of(p[n], q[n]))]
        return list(guesses) or [pick(p[0])]

    return law_of(p, drawn_from=q, kept_by=q, verify=verify)


@law_of_a_call.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def goes_on_behind_a_refusal(p, q):
    """Words are missing from the text, or two do not fit together.
    cause: Every guess is kept or refused by itself, and those after a refused
    one are kept too, though they were guessed after a word that is not there.
    fix: Stop at the first refusal."""

    def verify(p, q, guesses, pick):
        kept = []
        for n, guess in enumerate(guesses):
            share = (p[n, guess] / q[n, guess]).clamp(max=1)
            kept.append(
                guess if keeps(pick, share) else pick(left_of(p[n], q[n]))
            )
        return [*kept, pick(p[len(guesses)])]

    return law_of(p, drawn_from=q, kept_by=q, verify=verify)


@task(
    against="the outcomes of one guess, added up",
    cases={
        "the draft is the model": (_P, _P),
        "three tokens": (_P, _Q),
        "nothing in common": (f64(0.5, 0.5, 0.0), f64(0.0, 0.0, 1.0)),
        "a sure draft": (f64(0.3, 0.6, 0.1), f64(0.0, 1.0, 0.0)),
        "a draft with a hole": (f64(0.3, 0.6, 0.1), f64(0.0, 0.5, 0.5)),
        "a word of neither": (f64(0.3, 0.7, 0.0), f64(0.6, 0.4, 0.0)),
        "two rows": (_shares(2, 5, seed=3), _shares(2, 5, seed=4)),
        "rows in a batch": (
            _shares(2, 1, 5, seed=5),
            _shares(2, 1, 5, seed=6),
        ),
        "17 texts of 131 places": (
            _shares(17, 131, 3, seed=11),
            _shares(17, 131, 3, seed=12),
        ),
        "300 tokens": (_shares(300, seed=13), _shares(300, seed=14)),
    },
)
def acceptance(p, q):
    """the probability that a guess drawn from q (..., V) is kept, (...), where
    the model has the probabilities p (..., V)"""
    rows = []
    for a, b in zip(
        p.reshape(-1, p.shape[-1]).tolist(),
        q.reshape(-1, q.shape[-1]).tolist(),
    ):
        rows.append(sum(y * min(1.0, x / y) for x, y in zip(a, b) if y))
    return torch.tensor(rows, dtype=p.dtype).reshape(p.shape[:-1])


@acceptance.mistake(
    "ml-explore/mlx-lm #1709, ml-explore/mlx-lm #1085",
    symptom=symptoms.GUESSES_NO_FASTER,
)
def waits_for_two_draws_to_agree(p, q):
    """A draft that is as good as the model itself is refused with probability
    1 − Σ p², and should never be.
    cause: This is the probability that a draw from p equals the draw from q.
    Keeping only such guesses is right too, and wastes many good ones.
    fix: A guess x is kept with probability min(1, p(x) / q(x)).
    hint: How often is a guess kept if the draft is the model itself?"""
    return (p * q).sum(-1)


@acceptance.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def subtracts_the_whole_distance(p, q):
    """Too small everywhere, and negative where the two have little in common.
    cause: What p has above q and what q has above p are both subtracted. Each
    of the two is half of the distance.
    fix: It is 1 − Σ |p − q| / 2.
    hint: What is your number where p and q have nothing in common?"""
    return 1 - (p - q).abs().sum(-1)


@acceptance.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def weighs_the_ratio_by_the_target(p, q):
    """Close for similar distributions; NaN or too much where the draft cannot
    say a word that the model can.
    cause: The ratios are averaged with the model's probabilities. But it is
    the draft that draws the guess.
    fix: Σ q · min(1, p / q), which is Σ min(p, q).
    hint: Who draws the guess?"""
    return (p * (p / q).clamp(max=1)).sum(-1)


@task(
    against="a comparison of all places",
    home="speculative.look_up",
    cases={
        "the first word again": ([5, 6, 7, 5], 1),
        "two places": ([5, 6, 5, 7, 5], 1),
        "two words": ([1, 2, 3, 1, 2], 2),
        "not there": ([1, 2, 3, 0, 2], 2),
        "overlapping": ([4, 4, 4, 4], 3),
        "too short": ([4], 1),
        "shorter than n": ([5, 5], 3),
        "three words": (
            [1, 2, 3, 4, 1, 9, 3, 5, 7, 2, 3, 6, 1, 2, 3],
            3,
        ),
        "words that only look alike": (
            [1, 12, 9, 257, 12, 8, 12, 1, 6, 11, 12, 7, 11, 2, 5, 1, 12],
            2,
        ),
        "token 0 behind the latest": ([5, 3, 5, 0, 5], 1),
        "twelve words, ten of them twice": (
            [*range(1, 13), 20, *range(3, 13), 21, *range(1, 13)],
            12,
        ),
        "300 words before": ([7, 8, *range(20, 320), 7], 1),
        "131 words, twice": ([*range(131), 500, *range(131)], 131),
        "128 words, twice in a row": ([*range(128), *range(128)], 128),
    },
)
def look_up(text, n):
    """the token behind the latest earlier place where the last n tokens of
    the text stand, or None"""
    found = None
    for end in range(n, len(text)):
        if all(text[end - m] == text[-m] for m in range(1, n + 1)):
            found = text[end]
    return found


@look_up.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def takes_the_first_place(text, n):
    """It guesses what came at the beginning of the text, not what came last.
    cause: The search runs from the front and stops at the first match.
    fix: Search from the back.
    hint: If the words stand in two places, which of them do you take?"""
    for start in range(len(text) - n):
        if text[start : start + n] == text[-n:]:
            return text[start + n]
    return None


@look_up.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def guesses_the_match_itself(text, n):
    """Every guess is the word that was just written.
    cause: What is returned is the last token of the place that was found, not
    the one behind it.
    fix: The match begins at `start` and has n tokens: return `start + n`.
    hint: Is your guess a part of the match, or behind it?"""
    for start in range(len(text) - n - 1, -1, -1):
        if text[start : start + n] == text[-n:]:
            return text[start + n - 1]
    return None


@look_up.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def compares_the_last_word_alone(text, n):
    """Longer n change nothing.
    cause: Only the last of the n tokens is compared.
    fix: Compare all n of them.
    hint: Do the words before the last one agree, too?"""
    for end in range(len(text) - 1, n - 1, -1):
        if text[end - 1] == text[-1]:
            return text[end]
    return None


@look_up.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def finds_only_what_does_not_overlap(text, n):
    """Nothing is guessed in "the the the" and the like.
    cause: The search leaves out the last n tokens, and so every place that
    overlaps with them.
    fix: A match may reach into the last n tokens; it may not be them.
    hint: May the place that you look for share tokens with the end?"""
    for start in range(len(text) - 2 * n, -1, -1):
        if text[start : start + n] == text[-n:]:
            return text[start + n]
    return None


#: Nearly all are kept, and a few never, or now and then.
_HARD = [1.0] * 300
for _place, _chance in ((20, 0.0), (150, 0.3), (151, 0.6), (299, 0.5)):
    _HARD[_place] = _chance


@task(
    against="a sum over all outcomes",
    home="speculative.expected_calls",
    cases={
        "guesses that are never kept": ([0.0] * 3, 2),
        "guesses that are all kept": ([1.0] * 4, 1),
        "two tokens, one guess": ([0.7, 0.1], 1),
        "three tokens, one guess": ([0.7, 0.1, 0.4], 1),
        "no guess": ([0.9, 0.9, 0.9], 0),
        "always right": ([1.0] * 11, 5),
        "one hard place": ([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], 4),
        "seven tokens, two guesses": ([0.3, 0.8, 0.5, 0.9, 0.2, 0.7, 0.6], 2),
        "no token": ([], 3),
        "eleven guesses in one call": ([1.0] * 12, 11),
        "300 tokens, 131 guesses": (_HARD, 131),
    },
)
def expected_calls(kept, k):
    """how many calls a text takes on average, if at each place a guess that
    is tested is kept with the probability in the list `kept`, and a call
    tests at most k guesses and gives one token more"""
    total = 0.0
    sides = [
        [coin for coin in (True, False) if chance != 1 - coin]
        for chance in kept
    ]
    for coins in itertools.product(*sides):
        share = 1.0
        place = 0
        calls = 0
        for coin, chance in zip(coins, kept):
            share *= chance if coin else 1 - chance
        while place < len(kept):
            calls += 1
            end = min(place + k, len(kept))
            while place < end and coins[place]:
                place += 1
            place += 1
        total += share * calls
    return total


@expected_calls.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def takes_the_mean_for_all(kept, k):
    """Nearly right, and too few calls by some percent where easy and hard
    places stand in groups.
    cause: The formula (1 − αᵏ⁺¹) / (1 − α) tokens a call holds if each guess
    is kept with the same probability α, whatever the others did.
    fix: Go through the places, each with its own probability.
    hint: What if the first half of the text is easy and the second hard?"""
    if not kept:
        return 0.0
    mean = sum(kept) / len(kept)
    return len(kept) / sum(mean**n for n in range(k + 1))


@expected_calls.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def gives_k_tokens_at_most(kept, k):
    """A perfect draft with three guesses needs a third more calls than it
    should.
    cause: The token that the model gives behind the last guess is forgotten.
    fix: Where k guesses have been kept, one token more comes for nothing.
    hint: How many tokens come from a call whose guesses are all kept?"""
    calls = 0.0
    after = [1.0] + [0.0] * max(k - 1, 0)
    for share in kept:
        calls += after[0]
        if k == 0:
            continue
        refused = sum((1 - share) * chance for chance in after)
        moved = [share * chance for chance in after]
        after = [refused + moved[-1], *moved[:-1]]
    return calls


@expected_calls.mistake(symptom=symptoms.GUESSES_NO_FASTER)
def calls_for_every_refusal(kept, k):
    """Right while no text is long enough to fill a call's guesses, then too
    few calls; fewer than one for a text that is all guessed.
    cause: It is the number of refusals that is counted. A call also ends when
    its k guesses are used up, and the first call follows none.
    fix: Count where a call begins, not where a guess is refused.
    hint: How many calls does a text take if every guess is kept?"""
    return float(sum(1 - share for share in kept))


_TREE = ints(-1, 0, 0, 1, 1, 2)


@task(
    against="a walk from each guess to the root",
    cases={
        "one guess sees itself": (ints(-1),),
        "a line whose first has no parent": (ints(-1, 0, 1, 2),),
        "two first words": (ints(-1, -1),),
        "three generations": (_TREE,),
        "not in order": (ints(2, 0, -1, 2),),
        "the last comes first": (ints(1, 2, -1),),
        "two trees": (ints(-1, -1, 1, 0, 3, 2),),
        "a line of six, two more trees": (ints(-1, 0, 1, 2, 3, 4, -1, -1),),
        "a bush of 260": (ints(-1, *[0] * 238, *range(238, 259)),),
        "a line of 131": (torch.arange(131) - 1,),
        "a bush of 128": (ints(-1, *[0] * 127),),
    },
)
def tree_mask(parents):
    """who sees whom among guesses that form a tree, boolean (N, N): each sees
    itself, its parent, and so on up; parents (N,) has −1 at a first word"""
    mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for guess in range(len(parents)):
        above = guess
        while above >= 0:
            mask[guess, above] = True
            above = int(parents[above])
    return mask


@tree_mask.mistake(
    "PaddlePaddle/FastDeploy #3514", symptom=symptoms.GUESSES_CHANGE_TEXT
)
def sees_the_siblings(parents):
    """Alone each branch gets the right probabilities, side by side they do
    not.
    cause: The mask is the causal triangle: a guess sees every earlier one,
    also those of other branches, which are not in its text.
    fix: Only itself and its forebears.
    hint: Does a guess see another that stands in its place of the text?"""
    N = len(parents)
    return torch.ones(N, N, dtype=torch.bool).tril()


@tree_mask.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def sees_the_parent_alone(parents):
    """Trees of two generations work, deeper ones do not.
    cause: A guess sees its parent, but not the parent's parent.
    fix: Go up until there is no parent.
    hint: What does a guess of the third generation see?"""
    N = len(parents)
    mask = torch.eye(N, dtype=torch.bool)
    for guess, parent in enumerate(parents.tolist()):
        if parent >= 0:
            mask[guess, parent] = True
    return mask


@tree_mask.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def does_not_see_itself(parents):
    """The first words see nothing but the text, not even themselves.
    cause: The walk begins at the parent.
    fix: In attention a token sees itself too: begin there.
    hint: What stands on the diagonal of a causal mask?"""
    mask = tree_mask.right(parents)
    return mask & ~torch.eye(len(parents), dtype=torch.bool)


@tree_mask.mistake(symptom=symptoms.GUESSES_CHANGE_TEXT)
def sees_its_children(parents):
    """A guess sees what was guessed after it, and its probabilities depend
    on that.
    cause: The mask is the other way up: rows are what is seen.
    fix: Row n is what guess n sees.
    hint: May a word see what was guessed behind it?"""
    return tree_mask.right(parents).T
