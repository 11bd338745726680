"""Weights of an index that are learned from what people have typed.

`ranking.make_index` weighs a word by how rare it is. A word that stands in
many entries may still be typed for one of them alone, and a rare one may say
nothing. Where there are examples of what people type, each with the entry that
they meant, this room learns from them how well a word tells an entry from the
others. What it gives is an index of the same form, so that whoever searches
needs not know of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.teach.page.ranking import pairs, part_of, terms

#: How much a learned weight counts, beside the one that is only counted.
LEARNED = 0.1

#: Steps of learning, and their size. With more steps the examples are fitted
#: more closely, and words that are not among them find their entry less often.
STEPS = 40
STEP_SIZE = 0.3

#: How strongly learned weights are drawn to zero.
DECAY = 2e-4


def learn(
    index: Mapping[str, Any], examples: Sequence[tuple[str, int]]
) -> dict[str, Any]:
    """An index with weights that were also fitted to examples.

    Each word, or group of synonyms, gets a number for each entry that has it
    (not pairs of words: they are too rare to learn from). The numbers are
    fitted so that their sum over an example's terms is largest for the entry
    that is meant (cross-entropy of a softmax over the entries). `LEARNED`
    times these numbers are added to the weights.

    Args:
        index: as `make_index` gives it.
        examples: texts, each with the number of the entry that is meant.

    Raises:
        ValueError: if no example has a word of the index.
    """
    listed = index["terms"]
    found = [
        [
            term
            for term in dict.fromkeys(terms(text, index["phrases"]))
            if term in listed and " " not in term
        ]
        for text, _ in examples
    ]
    if not any(found):
        raise ValueError(
            "there is nothing to learn from; expected examples that have "
            f"words of the index; got {len(examples)}, of which none has one"
        )
    counts = Counter(term for of_one in found for term in of_one)
    sizes = {
        term: math.log(1 + len(examples) / times) * part_of(term)
        for term, times in counts.items()
    }
    rows = {term: row for row, term in enumerate(sizes)}
    has = torch.tensor(
        [(rows[term], entry) for term in rows for entry in listed[term][::2]]
    )
    meant = torch.tensor([entry for _, entry in examples])
    fitted = iter(_fit(_matrix(found, rows, sizes), meant, has).tolist())
    learned = dict(listed)
    for term in rows:
        scale = 1000 * LEARNED * sizes[term]
        learned[term] = []
        for entry, weight in pairs(listed[term]):
            learned[term] += [entry, weight + round(scale * next(fitted))]
    return {**index, "terms": learned}


def _matrix(
    found: Sequence[Sequence[str]],
    rows: Mapping[str, int],
    sizes: Mapping[str, float],
) -> Tensor:
    """The terms of each example as a row of length 1: (examples, terms).

    Args:
        found: the terms of each example.
        rows: the number of each term.
        sizes: how much each term counts.
    """
    places: list[tuple[int, int]] = []
    values: list[float] = []
    for number, of_one in enumerate(found):
        length = math.hypot(*(sizes[term] for term in of_one)) or 1.0
        places += [(number, rows[term]) for term in of_one]
        values += [sizes[term] / length for term in of_one]
    return torch.sparse_coo_tensor(
        torch.tensor(places).T,
        torch.tensor(values, dtype=torch.double),
        (len(found), len(rows)),
        check_invariants=True,
    )


def _fit(typed: Tensor, meant: Tensor, has: Tensor) -> Tensor:
    """A number for each term and entry that has it, fitted to examples.

    Args:
        typed: the terms of each example, (examples, terms).
        meant: the entry of each example, (examples,).
        has: the pairs of a term and an entry that has it, (pairs, 2).

    Returns:
        The numbers, in the order of the pairs: (pairs,).
    """
    n_terms = typed.shape[1]
    n_entries = 1 + int(max(has[:, 1].max(), meant.max()))
    numbers = torch.zeros(len(has), dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.Adam([numbers], lr=STEP_SIZE, weight_decay=DECAY)
    for _ in range(STEPS):
        table = torch.zeros(n_terms, n_entries, dtype=torch.double)
        table = table.index_put((has[:, 0], has[:, 1]), numbers)
        scores = torch.sparse.mm(typed, table)  # (examples, entries)
        loss = F.cross_entropy(scores, meant)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return numbers.detach()
