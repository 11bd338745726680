"""Chapter 19, a small server: tasks and known mistakes."""

import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import ints

task = tasks_of(19)


@task(
    against="a walk along the pages",
    cases={
        "one token, one page": ([0], 4, 0, 1),
        "six tokens on two pages": ([2, 0], 4, 0, 6),
        "the next one after five": ([2, 0], 4, 5, 1),
        "over the end of a page": ([5, 300, 3, 8], 12, 11, 20),
        "pages of one token": ([4, 2, 7], 1, 0, 3),
        "twenty pages of 131": ([*range(20, 0, -1)], 131, 300, 1900),
        "128 tokens from position 128 on, pages of 16": (
            [*range(20, 0, -1)],
            16,
            128,
            128,
        ),
    },
)
def slots(table, size, start, n):
    """the slots, (n,), of the tokens at positions start, start + 1, …; page p
    of the pool has slots p · size to p · size + size − 1"""
    walk = [page * size + n for page in table for n in range(size)]
    return torch.tensor(walk[start : start + n])


@slots.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def forgets_the_table(table, size, start, n):
    """Right for a request that holds pages 0, 1, 2, …, so for the first one
    in a fresh pool; the second one overwrites it.
    cause: A position is taken for its slot. Which page it stands on only the
    table knows.
    fix: table[p // size] · size + p % size."""
    return torch.arange(start, start + n)


@slots.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def turns_page_and_offset_round(table, size, start, n):
    """An index out of range, or another text's keys.
    cause: p % size is taken for the number of the page and p // size for the
    place on it.
    fix: Divide for the page, take the rest for the place on it."""
    p = torch.arange(start, start + n)
    return torch.tensor(table)[p % size] * size + p // size


@slots.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def counts_slots_from_the_chunk(table, size, start, n):
    """A text read in one piece is right; the second piece overwrites the
    first.
    cause: The new tokens are numbered from 0; what is kept is forgotten.
    fix: Start at the number of tokens that the pages hold already."""
    p = torch.arange(n)
    return torch.tensor(table)[p // size] * size + p % size


@task(
    against="a page for each tokens that begin one",
    cases={
        "one token on a page of four": ([1], 4),
        "a page exactly full": ([4], 4),
        "two half pages": ([2, 2], 4),
        "several lengths": ([6, 1, 16, 333], 16),
        "pages of one token": ([3, 5], 1),
        "nothing kept yet": ([0, 7], 8),
        "forty requests, pages of 131": ([7 * n for n in range(40)], 131),
        "16, 32, 64, 128, 15 and 17 tokens": ([16, 32, 64, 128, 15, 17], 16),
    },
)
def held(lengths, size):
    """the pair (pages, empty slots) of requests that keep so many tokens"""
    pages = sum(len(range(0, length, size)) for length in lengths)
    return pages, pages * size - sum(lengths)


@held.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def one_page_too_many(lengths, size):
    """Right but for texts that end where a page ends.
    cause: Every text gets a page for its rest, also where no rest is left.
    fix: Round up: -(-length // size).
    hint: How many pages do four tokens need if a page holds four?"""
    pages = sum(length // size + 1 for length in lengths)
    return pages, pages * size - sum(lengths)


@held.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def rounds_the_sum(lengths, size):
    """Too few pages: less than one page is wasted for all requests together.
    cause: The tokens of all requests are added up before they are cut into
    pages, as if two requests could write on one page.
    fix: Round up for each request by itself.
    hint: Can the ends of two texts stand on one page?"""
    pages = -(-sum(lengths) // size)
    return pages, pages * size - sum(lengths)


@held.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def counts_full_pages_only(lengths, size):
    """Too few pages, and fewer empty slots than none.
    cause: The rest of the division is dropped: the end of the text has no
    page.
    fix: Round up: a page that is begun is a page.
    hint: Where does the last token of a text of six stand, on pages of
    four?"""
    pages = sum(length // size for length in lengths)
    return pages, pages * size - sum(lengths)


_ABC = [7, 1, 4, 9, 2, 2, 8, 5, 3]


@task(
    against="a comparison token by token",
    cases={
        "nothing is kept": ([], [1, 2, 3], 2),
        "one page of two tokens in common": (
            [[1, 2, 7, 4], [1, 2, 3, 9]],
            [1, 2, 3, 4, 5],
            2,
        ),
        "a page that is not full": ([[1, 2, 3]], [1, 2, 3, 5, 6], 2),
        "the whole prompt is kept": ([_ABC], _ABC[:8], 4),
        "the whole prompt, pages of one": ([_ABC], _ABC[:3], 1),
        "a prompt that ends inside of a page": ([_ABC], _ABC[:7], 4),
        "the same page behind another": ([[1, 2, 3, 4]], [9, 9, 3, 4, 5], 2),
        "another text's third page": (
            [[1, 2, 3, 4], [8, 8, 3, 4, 5, 6]],
            [1, 2, 3, 4, 5, 6, 7],
            2,
        ),
        "all but the first token": (
            [[257, 2, 3, 4], [0, 2, 3, 4]],
            [1, 2, 3, 4, 5],
            2,
        ),
        "a page in another place": ([[1, 2, 3, 4]], [3, 4, 1, 2, 5], 2),
        "the longest of two": ([[7, 1, 9, 9], _ABC], _ABC + [6], 2),
        "the same words, or digits, in another order": (
            [[12, 1, 3], [11, 2, 3]],
            [1, 12, 4],
            2,
        ),
        "two begin alike, one is all full pages": (
            [[1, 2, 3, 4], [1, 2, 9]],
            [1, 2, 3, 4, 5],
            2,
        ),
        "shorter than a page": ([_ABC], _ABC[:2], 4),
        "a page of twelve": ([[*range(14)]], [*range(13), 20], 12),
        "twenty texts, twenty pages of 131": (
            [[*range(140 * n), 9999] for n in range(20)],
            [*range(3000)],
            131,
        ),
        "128 tokens in common, then others": (
            [[*range(140)], [*range(64), *range(500, 600)]],
            [*range(128), *range(700, 720)],
            16,
        ),
        "the whole prompt of 128 tokens": ([[*range(160)]], [*range(128)], 16),
    },
)
def tokens_found(kept, prompt, size):
    """how many of a prompt's first tokens need not be read: those on full
    pages of a kept text with the same beginning; the prompt's last token is
    read in any case"""
    best = 0
    for text in kept:
        same = 0
        while (
            same < min(len(text), len(prompt)) and text[same] == prompt[same]
        ):
            same += 1
        best = max(best, min(same, len(prompt) - 1) // size * size)
    return best


@tokens_found.mistake(
    "GeeeekExplorer/nano-vllm #114, #199", symptom=symptoms.WRONG_IN_A_SERVER
)
def finds_the_whole_prompt(kept, prompt, size):
    """A prompt that ends where a page ends, asked a second time: no token is
    left to read, so there are no logits to draw from. One server stops with
    an error in the kernel, which gets no query.
    cause: All of a prompt can be kept, but its last token's logits are not.
    fix: Look for the prompt without its last token.
    hint: What does the model have to read so that it can write a token?"""
    best = 0
    for text in kept:
        n = min(len(text), len(prompt)) // size * size
        while n and text[:n] != prompt[:n]:
            n -= size
        best = max(best, n)
    return best


@tokens_found.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def looks_at_the_page_alone(kept, prompt, size):
    """The text depends on what was asked before: keys that were computed
    behind another beginning are taken.
    cause: A page is named by its own tokens. Its keys and values depend on
    all that stands before it too.
    fix: Make a page's name from its tokens and the name of the page before.
    hint: Two texts have the same second page and different first ones. Are
    the second page's keys the same?"""
    known = {
        tuple(text[n : n + size])
        for text in kept
        for n in range(0, len(text) - size + 1, size)
    }
    n = 0
    while n + size < len(prompt) and tuple(prompt[n : n + size]) in known:
        n += size
    return n


@tokens_found.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def takes_a_page_that_is_not_full(kept, prompt, size):
    """Two requests write on one page, and each reads the other's tokens.
    cause: The tokens in common are counted to the last one, in the middle of
    a page. The other text goes on there.
    fix: Share full pages alone: round down to a multiple of the size.
    hint: Who writes on the rest of the last page that you share?"""
    best = 0
    for text in kept:
        same = 0
        while (
            same < min(len(text), len(prompt)) and text[same] == prompt[same]
        ):
            same += 1
        best = max(best, min(same, len(prompt) - 1))
    return best


@task(
    against="tokens dealt one by one",
    cases={
        "one prompt": ([5], [0], 8),
        "a prompt longer than the budget": ([9], [0], 4),
        "two that write one token each": ([7, 5, 12], [6, 4, 0], 8),
        "three prompts, the last one cut": ([300, 5, 900], [0, 0, 0], 1000),
        "the first one takes all": ([20, 4], [8, 3], 8),
        "nothing to read": ([3, 6], [3, 0], 5),
        "a prompt half found": ([20], [16], 8),
        "a long prompt, most of it found": ([700, 4], [512, 3], 256),
        "the last one gets nothing": ([6, 3], [0, 0], 6),
        "more that write than may": ([3, 4, 5], [2, 3, 4], 2),
        "forty requests": (
            [20 + n for n in range(40)],
            [n % 7 for n in range(40)],
            1000,
        ),
        "shares of 16, 32, 64 and 16, the budget of 128 used up": (
            [16, 48, 128, 80, 17],
            [0, 16, 64, 64, 16],
            128,
        ),
    },
)
def shares(lengths, kept, budget):
    """how many tokens each request reads in a step, in order of arrival: of
    length tokens, kept are in its pages; all of them together read at most
    budget, and who comes first reads first"""
    found = []
    for length, n in zip(lengths, kept):
        found.append(0)
        while n < length and sum(found) < budget:
            found[-1] += 1
            n += 1
    return found


@shares.mistake(
    "GeeeekExplorer/nano-vllm #233", symptom=symptoms.WRONG_IN_A_SERVER
)
def counts_before_the_hit(lengths, kept, budget):
    """A prompt of which a part was found is read from there to beyond its
    end: an index out of range, under load only.
    cause: The tokens to read are counted as if none were kept; only then are
    kept pages looked up.
    fix: Subtract what the pages hold, after they have been found.
    hint: Of a prompt of 20 tokens 16 are kept. How many are left to read?"""
    found = []
    for length in lengths:
        found.append(min(length, budget - sum(found)))
    return found


@shares.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def gives_each_the_whole_budget(lengths, kept, budget):
    """Steps as large as the number of requests allows; one long prompt after
    another makes all who write wait.
    cause: The budget is compared with each request, and never gets smaller.
    fix: Subtract what the earlier ones take.
    hint: What is the sum of the numbers that you return?"""
    return [min(a - n, budget) for a, n in zip(lengths, kept)]


@shares.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def never_cuts_a_prompt(lengths, kept, budget):
    """A prompt longer than the budget is never read; its request waits for
    ever.
    cause: A request is taken in only if all that it has fits.
    fix: Read as much as is left of the budget, a chunk, and the rest in the
    next steps.
    hint: When does a prompt of nine tokens have its turn, with a budget of
    four?"""
    found = []
    for length, n in zip(lengths, kept):
        fits = length - n <= budget - sum(found)
        found.append(length - n if fits else 0)
    return found


@task(
    against="a loop over pages",
    cases={
        "a page goes to the end of free": (ints(0, 1, 0), [2, 0], [1]),
        "three pages": (ints(1, 0, 1, 0, 1), [3, 1], [4, 0, 2]),
        "pages that another holds": (ints(2, 1, 2, 1), [], [0, 1, 2, 3]),
        "nothing": (ints(1, 1), [], []),
        "all shared": (ints(2, 3), [], [1, 0]),
        "131 pages of 300": (
            torch.arange(300) % 3 + 1,
            [*range(300, 320)],
            [*range(262, 0, -2)],
        ),
        "128 pages of 256": (
            torch.arange(256) % 2 + 1,
            [*range(128, 144)],
            [*range(128)],
        ),
    },
)
def give_back(holders, free, table):
    """the pair (holders, free) after a request has given its table back: each
    page has one holder less; those without any stand at the end of free, the
    last page of the table first"""
    holders = holders.clone()
    free = list(free)
    for page in reversed(table):
        holders[page] -= 1
        if not holders[page]:
            free.append(page)
    return holders, free


@give_back.mistake(
    "Avarok-Cybersecurity/atlas #373", symptom=symptoms.WRONG_IN_A_SERVER
)
def frees_what_others_hold(holders, free, table):
    """Another request's text turns to nonsense in the middle of a sentence:
    its page has been given to a third.
    cause: The pages of a request that has ended are freed, whoever else holds
    them.
    fix: Count down, and free a page only when nobody holds it.
    hint: Who else reads a page whose count is 2?"""
    holders = holders.clone()
    holders[table] = 0
    return holders, [*free, *reversed(table)]


@give_back.mistake(
    "jjang-ai/vmlx #68, kekzl/imp #1115", symptom=symptoms.WRONG_IN_A_SERVER
)
def never_frees_a_page(holders, free, table):
    """The server gets slower from day to day, until no request finds a page;
    a restart helps.
    cause: The counts go down, and nothing puts a page without holders back
    among the free ones.
    fix: Append it to free when its count reaches 0.
    hint: After your function, is each page either held or free?"""
    holders = holders.clone()
    holders[table] -= 1
    return holders, list(free)


@give_back.mistake(symptom=symptoms.WRONG_IN_A_SERVER)
def frees_the_beginning_first(holders, free, table):
    """Nothing is wrong, and yet few prompts find anything: of a kept text the
    beginning is lost first, and without it the rest cannot be found.
    cause: The pages are given back in the order of the text, and the first
    one given back is the first one taken.
    fix: Give the last page back first.
    hint: Page 0 of a text is taken by someone else. Can its page 1 still be
    found?"""
    holders = holders.clone()
    holders[table] -= 1
    return holders, [*free, *(p for p in table if not holders[p])]
