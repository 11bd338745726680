"""A known mistake on a page: what is shown, and what is folded."""

import re

from IPython.core.formatters import DisplayFormatter

from attnbook.teach import mistakes

NAME = "softmax_over_queries"


def test_the_symptom_and_the_fix_are_seen_and_the_rest_is_folded(
    capsys, monkeypatch
):
    shown = []
    monkeypatch.setattr(mistakes, "display", shown.append)
    mistakes.run(NAME)
    seen = capsys.readouterr().out
    assert re.findall(r"(?m)^(\w[\w ]+):", seen) == ["what happens", "fix"]
    formats, _ = DisplayFormatter().format(shown[0])
    fold = formats["text/markdown"]
    assert re.fullmatch(r"(?s)<details>\n<summary>.+</details>", fold)
    known = mistakes.get(NAME)
    for text in formats.values():  # plain text, too
        assert known.source() in text
        assert known.task.name in text and "issues/146" in text
    assert "<" not in formats["text/plain"]


def test_markdown_finds_nothing_to_format_in_plain_text():
    assert mistakes.plain("a_b[0] *c* |Δ| > 1") == (
        r"a\_b\[0\] \*c\* \|Δ\| \> 1"
    )
