"""The words of the trade lead by the site's search to their sections."""

import tomllib

import pytest
import search_words
from searched import searched

DATA = tomllib.loads(search_words.WORDS.read_text("utf-8"))
WORDS = DATA["word"]


def test_there_are_150_words_of_which_half_are_kept():
    typed = [word["typed"] for word in WORDS]
    assert len(set(typed)) == len(typed) == 150
    seen, kept = search_words.halves(WORDS)
    assert len(seen) == len(kept) == 75
    assert sorted(w["typed"] for w in seen + kept) == sorted(typed)


def test_they_lead_to_their_sections():
    sections, index = searched()
    groups = [*search_words.halves(WORDS), DATA["fresh"]]
    for group, least in zip(groups, LEAST, strict=True):
        lost = search_words.misses(index, sections, group)
        assert len(group) - len(lost) >= least * len(group), lost


#: The shares that were reached, of the words seen, of those kept and of the
#: fresh ones, less what a retold chapter may cost.
LEAST = (0.95, 0.95, 0.95)


def test_an_entry_of_the_glossary_leads_to_its_section_as_well():
    sections, index = searched()
    led = search_words.first(index, sections, "low-rank adaptation")
    at = next(
        n for n, s in enumerate(led) if s.startswith("glossary#term-low")
    )
    assert led[at + 1].endswith("#a-small-change-of-a-large-matrix")


def test_another_file_is_asked(tmp_path, monkeypatch, capsys):
    _, index = searched()
    monkeypatch.setattr(search_words, "search_index", lambda sections: index)
    path = tmp_path / "words.toml"
    path.write_text(
        '[[word]]\ntyped = "GQA"\nleads_to = ["18"]\n'
        '[[word]]\ntyped = "GQA"\nleads_to = ["99"]\n',
        "utf-8",
    )
    monkeypatch.setattr("sys.argv", ["search_words.py", str(path)])
    search_words.main()
    printed = capsys.readouterr().out
    assert printed.startswith("seen: 1 of 2 (50%)\n    'GQA': ")


@pytest.mark.parametrize("given", [["--wrong"], ["a.toml", "b.toml"]])
def test_what_it_does_not_know_is_refused(monkeypatch, given):
    monkeypatch.setattr("sys.argv", ["search_words.py", *given])
    with pytest.raises(SystemExit, match="takes --kept and one file"):
        search_words.main()
