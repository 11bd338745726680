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
c19.held.ask("""
    one token on a page of four: How many pages hold one token, and how
    many of their slots are empty?
    a page exactly full: Four tokens on pages of four: how many pages, and
    how many slots are left?
    two half pages: Has each request pages of its own, and empty slots?
    several lengths: How many of these pages has the one token?
""")
c19.tokens_found.ask("""
    nothing is kept: What can be found where nothing is kept?
    one page of two tokens in common: Which pages do the two have in
    common, and how many tokens stand on them?
    a page that is not full: Which pages of the kept text are full?
    the whole prompt is kept: Which token is read in any case, and where
    does its page begin?
    a prompt that ends inside of a page: Which page has the last token, and
    which come before it?
    the same page behind another: What do a page's keys depend on, beside
    its own tokens?
    another text's second page: Which of the two begins as the prompt does,
    and how far?
    the longest of two: Which text has most in common with the prompt?
""")
c19.shares.ask("""
    one prompt: How much of a prompt may be read in one step?
    a prompt longer than the budget: How much of it can be read now?
    two that write one token each: Who takes first, and how much of the
    budget does that leave for the third?
    three prompts, the last one cut: What does the first one take, what the
    second, and what is left?
    the first one takes all: Who takes first, and what number stands for
    one for whom nothing is left?
""")
c19.shares.slip(
    "what is kept afterwards is returned",
    "Are the tokens that were kept before read in this step?",
    lambda lengths, kept, budget: [
        n + read for n, read in zip(kept, c19.shares(lengths, kept, budget))
    ],
)


def _shortest_first(lengths, kept, budget):
    order = sorted(range(len(kept)), key=lambda i: lengths[i] - kept[i])
    a, n = ([numbers[i] for i in order] for numbers in (lengths, kept))
    read = dict(zip(order, c19.shares(a, n, budget)))
    return [read[i] for i in range(len(kept))]


c19.shares.slip(
    "who has least to read reads first",
    "Who came first, and is there anything left for the others?",
    _shortest_first,
)


def _freed(merge):
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
c19.give_back.ask("""
    a page goes to the end of free: How many hold page 1 then, and behind
    which pages does it stand?
    three pages: Which of the text's pages is given back first?
    a page that another holds: Who else reads a page whose count is 2?
""")
