"""Slips of chapter 19."""

from attnbook.teach.catalogue import c19_server as c19

c19.held.slip(
    "the slots that are used count as empty",
    "Two tokens stand on a page of four. How many of its slots are empty?",
    lambda lengths, size: (
        c19.held(lengths, size)[0],
        sum(n % size for n in lengths),
    ),
)
c19.shares.slip(
    "what is kept afterwards is returned",
    "Are the tokens that were kept before read in this step?",
    lambda lengths, kept, budget: [
        n + read for n, read in zip(kept, c19.shares(lengths, kept, budget))
    ],
)


def _shortest_first(lengths, kept, budget):
    """The tokens that each request reads in a step, when the budget is given
    to those first that have least left to read."""
    order = sorted(range(len(kept)), key=lambda i: lengths[i] - kept[i])
    a, n = ([numbers[i] for i in order] for numbers in (lengths, kept))
    read = dict(zip(order, c19.shares(a, n, budget)))
    return [read[i] for i in range(len(kept))]


c19.shares.slip(
    "who has least to read reads first",
    "Who came first, and is there anything left for the others?",
    _shortest_first,
)


def _one_for_who_writes(lengths, kept, budget):
    """The tokens that each request reads in a step, when one of which some
    are kept takes a single token off the budget, however many it reads."""
    found = []
    for length, n in zip(lengths, kept):
        reads = min(length - n, budget)
        found.append(reads)
        budget -= 1 if n and reads else reads
    return found


c19.shares.slip(
    "who has tokens kept takes one off the budget, however many it reads",
    "How many tokens of the budget does a request that reads five use up?",
    _one_for_who_writes,
)


def _freed(merge):
    """A slip of `give_back`: `merge(free, given)` puts the pages that became
    free among those that were."""

    def wrong(holders, free, table):
        holders, given = c19.give_back(holders, [], table)
        return holders, merge(free, given)

    return wrong


c19.give_back.slip(
    "the free pages are sorted",
    "In which order did the free pages stand before?",
    _freed(lambda free, given: sorted(free + given)),
)
c19.give_back.slip(
    "the pages stand before those that were free",
    "Which page is taken next, and which one was free longest?",
    _freed(lambda free, given: given + free),
)
