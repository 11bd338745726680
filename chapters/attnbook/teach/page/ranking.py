"""Which of some entries fit words that somebody typed.

The words of each entry are weighed once, when the index is made, and the
weights are stored as whole numbers. To rank is then to add some of them up,
so that a page's script (`site/static/ranking.js`) gets the same order as this
room, to the last tie. Where there are examples of what people type,
`attnbook.teach.page.learning` adds to the weights what can be learned of them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

#: Words that say nothing about a fault.
STOPS = frozenset(
    "a an and are as at be been but by can do does doing for from get gets "
    "give gives got had has have having how i if in into is it its just like "
    "me my no of on one or our so some such than that the their them then "
    "there these they this to too up was we were what when where which while "
    "who why will with would you your s t m".split()
)

#: How much a word of the trade counts, beside an ordinary one.
NAMED = 0.8

#: How much two words side by side count, beside an ordinary one.
PAIR = 0.3

#: How much a word counts that was not typed to its end, in tenths.
PREFIX_TENTHS = 7

#: Letters that such a beginning has at least.
SHORTEST_PREFIX = 4

#: How much a word counts, in tenths, that was typed as a part of a longer one,
#: as in "ColwiseParallel". Then the fewest letters of a part, the most parts,
#: and the most letters of a word that is cut.
PART_TENTHS = 8
SHORTEST_PART = 3
MOST_PARTS = 4
LONGEST_TO_CUT = 40

#: How much a word counts that is only spelled alike, in tenths.
ALIKE_TENTHS = 5

#: The part of their groups of three letters, in tenths, that two words have
#: in common if they are spelled alike.
SHARED_TENTHS = 6


@cache
def stem(word: str) -> str:
    """A word without its ending, the same for British and American forms.

    >>> stem("normalised") == stem("normalizing") == stem("normalisation")
    True
    """
    if len(word) <= 3 or re.search(r"\d", word):
        return word
    word = re.sub(r"is(e|es|ed|ing|ation|ations|er|ers)$", r"iz\1", word)
    word = re.sub(r"ie[sd]$", "y", word)
    word = re.sub(r"(s|x|z|ch|sh)es$", r"\1", word)
    word = re.sub(r"([^sui])s$", r"\1", word)
    if len(word) > 5:
        word = re.sub(r"(ation|ing|ion|ed|ly)$", "", word)
    elif len(word) > 4:
        word = re.sub(r"ed$", "", word)
    word = re.sub(r"(at)?e$", "", word) if len(word) > 4 else word
    word = re.sub(r"at$", "", word) if len(word) > 5 else word
    return re.sub(r"([b-df-hj-np-tv-z])\1$", r"\1", word)


def stems(text: str) -> list[str]:
    """The stems of a text's words in their order, without the stop words."""
    plain = unicodedata.normalize("NFKD", text)
    plain = re.sub(r"[\u0300-\u036f]", "", plain).lower()
    words = re.findall(r"[a-z0-9]+", plain)
    return [stem(word) for word in words if word not in STOPS]


class Phrases(dict[str, str]):
    """The name of each group of synonyms under the stems of its phrases.

    What a search asks of all phrases is found out once.
    """

    @cached_property
    def longest(self) -> int:
        """How many words the longest phrase has; 0 if there is none."""
        return max((key.count(" ") + 1 for key in self), default=0)

    @cached_property
    def begins(self) -> set[str]:
        """The first words of the phrases."""
        return {key.partition(" ")[0] for key in self}


def phrases(synonyms: Iterable[Sequence[str]]) -> Phrases:
    """The name of each group of synonyms under the stems of its phrases.

    Args:
        synonyms: groups of words or phrases that mean the same.
    """
    found = Phrases()
    for number, group in enumerate(synonyms):
        for phrase in group:
            key = " ".join(stems(phrase))
            if key:
                found.setdefault(key, f"={number}")
    return found


def terms(text: str, known: Mapping[str, str]) -> list[str]:
    """What a text is found by: its stems, pairs of neighbours, and the names
    of the groups of synonyms whose phrases it has.

    Args:
        known: as `phrases` gives them.
    """
    words = stems(text)
    found = list(words)
    found += [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)]
    return found + [known[key] for key in phrases_in(words, known)]


def phrases_in(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The phrases of synonyms in a text, at each word the longest one.

    Args:
        words: the stems of the text.
        known: as `phrases` gives them.
    """
    found = []
    if not isinstance(known, Phrases):  # such as one that was read from JSON
        known = Phrases(known)
    for start in range(len(words)):
        if words[start] not in known.begins:
            continue
        for length in range(known.longest, 0, -1):
            key = " ".join(words[start : start + length])
            if start + length <= len(words) and key in known:
                found.append(key)
                break
    return found


def part_of(term: str) -> float:
    """How much a term counts beside an ordinary word, by its kind."""
    if " " in term:
        return PAIR
    return NAMED if term.startswith("=") else 1.0


def make_index(
    entries: Sequence[Mapping[str, str]],
    fields: Mapping[str, float],
    synonyms: Iterable[Sequence[str]],
    pairs_in: Collection[str] | None = None,
    shares: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Weigh the terms of some entries (a form of BM25 with fields).

    Args:
        entries: of each entry the text of each field.
        fields: how much a word in a field counts.
        synonyms: groups of words or phrases that mean the same.
        pairs_in: the fields in which two words side by side count once more
            as a pair; all fields if it is None. In long texts they would
            make the index several times as large.
        shares: how much each entry counts beside the others; all alike if
            it is None.

    Returns:
        Under "phrases" what `phrases` gives, and under "terms" for each term
        the entries that have it: number, weight, number, weight, …
    """
    # long: one pass after the other over the same few tables
    known = phrases(synonyms)
    counts = [
        {
            name: Counter(
                term
                for term in terms(entry.get(name, ""), known)
                if " " not in term or pairs_in is None or name in pairs_in
            )
            for name in fields
        }
        for entry in entries
    ]
    mean = {
        name: max(1.0, sum(c[name].total() for c in counts) / len(counts))
        for name in fields
    }
    having = Counter(term for c in counts for term in set().union(*c.values()))
    weighed: dict[str, list[int]] = {term: [] for term in sorted(having)}
    for number, count in enumerate(counts):
        sums: dict[str, float] = {}
        for name, weight in fields.items():
            length = 0.6 + 0.4 * count[name].total() / mean[name]
            for term, times in count[name].items():
                sums[term] = sums.get(term, 0.0) + weight * times / length
        for term in sorted(sums):
            rare = math.log(1 + len(entries) / having[term])
            part = part_of(term)
            filled = sums[term] / (1.5 + sums[term])
            share = 1.0 if shares is None else shares[number]
            weight = round(1000 * rare * part * filled * share)
            weighed[term] += [number, weight]
    return {"phrases": known, "terms": weighed}


def rank(index: Mapping[str, Any], query: str) -> list[tuple[int, int]]:
    """The entries that have something of a query, the best first.

    Args:
        index: as `make_index` gives it. Under "covered" it may have how much
            a word counts, in tenths, that is part of a longer phrase of
            synonyms: of "positional encoding", "encoding" alone says little.

    Returns:
        The number of each entry, and its score, which is above 0: a learned
        weight may be negative. Of two with the same score the one with the
        smaller number comes first.
    """
    scores: dict[int, int] = {}
    known = phrases_in(stems(query), index["phrases"])
    inside = {word for key in known if " " in key for word in key.split()}
    asked = terms(query, index["phrases"])
    asked += joined(asked, index["terms"])
    for term in dict.fromkeys(asked):
        tenths = index.get("covered", 10) if term in inside else 10
        best = dict(pairs(index["terms"].get(term, ())))
        if not best and len(term) >= SHORTEST_PREFIX and " " not in term:
            best = near(index["terms"], term)
        for entry, weight in best.items():
            scores[entry] = scores.get(entry, 0) + weight * tenths // 10
    found = [(entry, score) for entry, score in scores.items() if score > 0]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def joined(asked: Sequence[str], listed: Collection[str]) -> list[str]:
    """Words of an index that were typed in two parts, such as "soft max".

    Args:
        asked: the terms of what was typed.
        listed: the terms of the index.
    """
    whole = [term.replace(" ", "") for term in asked if " " in term]
    return [word for word in whole if word in listed]


def near(listed: Mapping[str, Sequence[int]], typed: str) -> dict[int, int]:
    """What a word is worth to each entry that stands nowhere as it is typed.

    It may be the beginning of another word, or several words that were typed
    as one, such as "ColwiseParallel". Where it is neither, words count that
    are spelled alike, such as "embeding" and "embedding".

    Args:
        listed: the terms of an index, each with its entries and weights.
    """
    words = [word for word in listed if " " not in word]
    longer = [word for word in words if word.startswith(typed)]
    inside = [] if longer else parts(listed, typed)
    if inside:
        sums: Counter[int] = Counter()
        for word in inside:
            for entry, weight in pairs(listed[word]):
                sums[entry] += weight * PART_TENTHS // 10
        return dict(sums)
    tenths = PREFIX_TENTHS if longer else ALIKE_TENTHS
    best: dict[int, int] = {}
    for word in longer or [w for w in words if is_alike(w, typed)]:
        for entry, weight in pairs(listed[word]):
            part = weight * tenths // 10
            best[entry] = max(best.get(entry, 0), part)
    return best


def parts(
    listed: Collection[str], typed: str, most: int = MOST_PARTS
) -> list[str]:
    """The words of an index of which a word is made, or none.

    Of several ways to cut it, the one with the fewest parts is taken, and of
    these the one whose first part is the longest.

    Args:
        listed: the terms of the index.
        typed: the word, without its ending.
        most: how many parts there are at most.

    >>> parts({"column", "parallel"}, "columnsparallel")
    ['column', 'parallel']
    """
    found: list[str] = []
    if not SHORTEST_PART <= len(typed) <= LONGEST_TO_CUT:
        return found
    for at in range(len(typed) - SHORTEST_PART, SHORTEST_PART - 1, -1):
        head = stem(typed[:at])
        tail = typed[at:]
        if head not in listed:
            continue
        if tail in listed:
            return [head, tail]
        further = parts(listed, tail, most - 1) if most > 2 else []
        if further and not found:
            found = [head, *further]
    return found


def is_alike(word: str, other: str) -> bool:
    """Whether two words have most of their groups of three letters in common.

    >>> is_alike("embed", "embbed"), is_alike("embed", "imbue")
    (True, False)
    """
    ours, theirs = threes(word), threes(other)
    shared = 2 * len(ours & theirs)
    return 10 * shared >= SHARED_TENTHS * (len(ours) + len(theirs))


def threes(word: str) -> set[str]:
    """The groups of three letters of a word, its two ends marked."""
    marked = f"^{word}$"
    return {marked[at : at + 3] for at in range(len(marked) - 2)}


def pairs(listed: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of a number and its weight, from a list where they alternate."""
    return list(zip(listed[::2], listed[1::2], strict=True))
