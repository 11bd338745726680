"""What a reader meets who types into a notebook: short and in sentences."""

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.judge import judge
from attnbook.teach.check.proof import Disagreement, agrees
from attnbook.teach.exercises import check


@pytest.fixture
def page(capsys):
    """Run cells of a notebook: what they print, traceback and all."""
    shell = InteractiveShell()
    shell.run_cell("from attnbook.teach.exercises import check\nimport torch")

    def run(cell):
        shell.run_cell(cell)
        return capsys.readouterr().out

    run.shell = shell
    return run


def test_a_traceback_has_the_readers_lines_alone(page):
    said = page(
        "def helper(x):\n    return x[99]\n"
        "def my_softmax(scores, dim=-1):\n    return helper(scores)\n"
        "check.softmax(my_softmax)"
    )
    assert "your code raised IndexError" in said
    verdict, _, trace = said.partition("\n  line 4: return helper(scores)\n")
    assert trace.splitlines()[0] == "  line 2: return x[99]"
    assert trace.splitlines()[1].startswith("IndexError: index 99 is out of")
    assert len(trace.splitlines()) == 2


def test_endless_recursion_is_told_in_a_few_lines(page):
    said = page(
        "def my_softmax(scores, dim=-1):\n"
        "    return my_softmax(scores, dim)\n"
        "check.softmax(my_softmax)"
    )
    assert "RecursionError" in said and len(said.splitlines()) < 20


@pytest.mark.parametrize("word", ["exit", "quit"])
def test_exit_is_refused_as_sys_exit_is(page, word):
    said = page(
        f"def my_softmax(scores, dim=-1):\n    {word}()\n"
        "    return torch.softmax(scores, dim)\n"
        "check.softmax(my_softmax)"
    )
    words = "your code raised SystemExit: exit() and quit() would end"
    assert words in " ".join(said.split())
    exits = page.shell.user_ns[word]
    assert type(exits).__name__ == "ExitAutocall"  # and it is what it was


def test_exit_is_refused_to_a_class_too(monkeypatch):
    calls = []
    main = __import__("__main__")
    monkeypatch.setattr(main, "exit", lambda: calls.append(1), raising=False)

    class Softmax:
        def __call__(self, scores, dim=-1):
            main.exit()
            return torch.softmax(scores, dim)

    verdict = judge(Softmax(), all_tasks()["softmax"])
    assert "SystemExit" in verdict.message and not calls
    main.exit()
    assert calls == [1]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: check(3), "needs a function of the page.* got 3$"),
        (lambda: check(None), r"as in check\(softmax\); .* got None"),
        (
            lambda: check.softmax(),
            r"as in check.softmax\(my_softmax\); .*none",
        ),
        (lambda: check.softmax(min, max), "expected one; got 2"),
        (lambda: check.softmax(3), "softmax needs a function.* got int"),
    ],
)
def test_a_check_that_is_called_wrongly_says_how(call, words):
    with pytest.raises(TypeError, match=words):
        call()


class Agrees(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in ("equal", "allclose", "eq", "all", "__eq__"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_subclass_of_tensor_does_not_answer_for_itself():
    def mine(n_queries, n_keys):
        return torch.zeros(n_queries, n_keys).bool().as_subclass(Agrees)

    assert judge(mine, all_tasks()["causal_mask"]).kind == "wrong"
    right = all_tasks()["causal_mask"].right
    assert (
        judge(
            lambda *a: right(*a).as_subclass(Agrees),
            all_tasks()["causal_mask"],
        ).kind
        == "right"
    )
    with pytest.raises(Disagreement):
        agrees(torch.zeros(2).as_subclass(Agrees), torch.ones(2))
