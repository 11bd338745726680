"""The words of the trade lead by the site's search to their sections."""

import tomllib

import search_words

from press.contents import contents
from press.sections import all_sections, search_index

WORDS = tomllib.loads(search_words.WORDS.read_text("utf-8"))["word"]


def test_there_are_150_words_of_which_half_are_kept():
    typed = [word["typed"] for word in WORDS]
    assert len(set(typed)) == len(typed) == 150
    seen, kept = search_words.halves(WORDS)
    assert len(seen) == len(kept) == 75
    assert sorted(w["typed"] for w in seen + kept) == sorted(typed)


def test_they_lead_to_their_sections():
    sections = all_sections(contents().documents)
    index = search_index(sections)
    for half, least in zip(search_words.halves(WORDS), LEAST, strict=True):
        lost = search_words.misses(index, sections, half)
        assert len(half) - len(lost) >= least * len(half), lost


#: The shares that were reached, of the words seen and of those kept, less
#: what a retold chapter may cost.
LEAST = (0.95, 0.9)
