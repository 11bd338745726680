"""The page for teachers: its minutes, its exercises, its mistakes."""

import re

import pytest
from book import exercises, seen
from measures import TEACHERS, WEEK, chapters, course, measure

from attnbook.teach.catalogue import all_mistakes
from attnbook.teach.check.confine import MORE_MEMORY, PATIENCE
from attnbook.teach.check.grade import MEMORY, SECONDS
from attnbook.teach.check.walls import KEPT_FROM

PAGE = TEACHERS.read_text("utf-8")


def test_the_minutes_are_those_of_the_chapters():
    assert course(PAGE) == PAGE
    assert course(re.sub(r"\| \d+ \|$", "| 1 |", PAGE, flags=re.M)) == PAGE


def test_every_chapter_has_its_week_and_something_to_hand_in():
    weeks = [m for m in WEEK.finditer(PAGE)]
    files = [re.findall(r"\((\d\d)_", week[2]) for week in weeks]
    assert sum(files, []) == [p.name[:2] for p in chapters([])]
    assert len(weeks) == 6
    for week, numbers in zip(weeks, files):
        handed = {n.strip().partition(".")[0] for n in week[4].split(",")}
        assert handed == {str(int(n)) for n in numbers}


def test_an_exercise_of_another_week_is_refused():
    with pytest.raises(LookupError):
        course(PAGE.replace("| 1.1, ", "| 20.1, "))


def test_the_hard_exercises_are_all_of_them():
    """But for those that are handed in."""
    titles = "\n".join(str(seen(p).cells) for p in chapters([]))
    hard = set(re.findall(r"Exercise (\d+\.\d+): [^\n(]*\(hard", titles))
    handed = {n.strip() for w in WEEK.finditer(PAGE) for n in w[4].split(",")}
    (named,) = re.findall(r"the hard ones \(([^)]*)\)", PAGE)
    assert set(named.split(", ")) == hard - handed and len(hard) > 5


def test_its_mistakes_are_of_their_week_and_were_seen_twice():
    known = all_mistakes()
    weeks = list(WEEK.finditer(PAGE))
    rows = re.findall(
        r"(?m)^\| (\d) \| \[`(\w+)`\]\(mistakes.ipynb#chapter-(\d+)-", PAGE
    )
    assert {int(week) for week, *_ in rows} == set(range(1, 7))
    for week, name, chapter in rows:
        mistake = known[name]
        assert mistake.chapter == int(chapter)
        assert f"({int(chapter):02}_" in weeks[int(week) - 1][2]
        assert mistake.seen.count("#") >= 2 and mistake.hint


def test_a_chapters_exercises_have_minutes():
    for path in chapters([]):
        assert len(measure(seen(path)).each) == len(exercises(path))


def test_the_limits_are_those_of_the_command():
    text = " ".join(PAGE.split())
    assert f"`--seconds {SECONDS}` of computing" in text
    assert f"`--memory {MEMORY}` megabytes" in text
    assert f"no result after {SECONDS} seconds" in text
    assert "ten times as long" in text and PATIENCE == 10
    for verdict in ("right", "not right", "not tried", "error", "limit"):
        assert f"*{verdict}*" in text


def test_it_lists_what_an_answer_is_kept_from():
    """In the words of the command, which tries each of them."""
    section = PAGE.partition("### What keeps an answer in its place")[2]
    rows = re.findall(r"(?m)^\| ([a-z ]+) \| the system", section)
    assert rows == [*KEPT_FROM, MORE_MEMORY]
    assert "python -m attnbook grade FOLDER" in PAGE
