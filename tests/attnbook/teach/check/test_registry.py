"""The engine works for whatever book has registered."""

import json as library
from dataclasses import replace

import pytest

from attnbook.teach.check import registry
from attnbook.teach.check.judge import judge
from attnbook.teach.check.registry import Book, register, the_book
from attnbook.teach.check.task import task


@task({"one": (1,), "two": ([2, "x"],)}, against="repr", home="decoder.loads")
def dumps(thing):
    """a thing as text"""
    return library.dumps(thing)


@pytest.fixture
def no_book(monkeypatch):
    monkeypatch.setattr(registry, "_registered", [])


def test_this_book_registers_itself():
    assert the_book().package == "attnbook"
    assert "softmax" in the_book().tasks
    assert "forgets_the_scale" in the_book().mistakes


def test_another_book_has_other_tasks(no_book):
    asked = []

    def load():
        asked.append(1)
        return {"dumps": replace(dumps, home="dumps")}

    book = Book("json", load, answer_prefix="my_")
    register(book)
    assert not asked  # a reference may import large libraries
    assert [*the_book().tasks] == ["dumps"] and the_book().mistakes == {}
    assert len(asked) == 1
    assert (book.folder / "json").is_dir()
    own = book.own_function(replace(dumps, home="encoder.JSONEncoder"))
    assert own is library.JSONEncoder
    assert judge(library.dumps, dumps).kind == "right"


def test_what_is_missing_is_said(no_book):
    with pytest.raises(LookupError, match="no book is registered"):
        the_book()
    book = Book("json", dict, answer_prefix="my_")
    register(book)
    register(book)
    with pytest.raises(ValueError, match="one book in a process"):
        register(replace(book, package="csv"))
    with pytest.raises(LookupError, match="no function of its own for dumps"):
        book.own_function(replace(dumps, home=""))
