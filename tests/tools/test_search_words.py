"""The words of the trade lead by the site's search to their sections."""

import tomllib

import search_words

from press.contents import contents
from press.sections import all_sections, search_index

DATA = tomllib.loads(search_words.WORDS.read_text("utf-8"))
WORDS = DATA["word"]


def test_there_are_150_words_of_which_half_are_kept():
    typed = [word["typed"] for word in WORDS]
    assert len(set(typed)) == len(typed) == 150
    seen, kept = search_words.halves(WORDS)
    assert len(seen) == len(kept) == 75
    assert sorted(w["typed"] for w in seen + kept) == sorted(typed)


def test_they_lead_to_their_sections():
    sections = all_sections(contents().documents)
    index = search_index(sections)
    groups = [*search_words.halves(WORDS), DATA["fresh"]]
    for group, least in zip(groups, LEAST, strict=True):
        lost = search_words.misses(index, sections, group)
        assert len(group) - len(lost) >= least * len(group), lost


#: The shares that were reached, of the words seen, of those kept and of the
#: fresh ones, less what a retold chapter may cost.
LEAST = (0.95, 0.9, 0.8)
