"""Talking with a model in a terminal: with a small random one, and SmolLM2."""

import io
import os
import select
import signal
import subprocess
import sys
import time

import jinja2
import pytest
import torch
from gguf_files import write
from models import random_model
from notebooks import CHAPTERS
from real_models import SMOLLM2, needs_smollm2, smollm2_file

from attnbook import chat, gguf
from attnbook.chat import SYSTEM, Chat, Interrupts, WordWrap, columns
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPTConfig
from attnbook.layers import attention_weights
from attnbook.pretrained import load, load_tokenizer
from attnbook.teach.check.proof import agrees

FILE = "small.gguf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small random model in a file."""
    found = tmp_path_factory.mktemp("chat")
    write(found / FILE)
    return found


@pytest.fixture(scope="module")
def parts(folder):
    return load(folder / FILE), load_tokenizer(folder / FILE)


def begun(parts, **options):
    return Chat(*parts, system="Be kind.", **options)


def answered(talk, question, most=12):
    talk.ask(question)
    return list(talk.answer(most))


def test_the_cache_is_kept_between_turns_and_only_the_new_is_read(parts):
    talk = begun(parts)
    read = []
    hook = talk.model.register_forward_pre_hook(
        lambda model, args: read.append(args[0].shape[1])
    )
    try:
        first = answered(talk, "hello")
        n_first = len(talk.tokens)
        to_read = talk.ask("and you?")
        second = list(talk.answer(12))
    finally:
        hook.remove()
    assert len(first) == len(second) == 12  # it never ends by itself
    # First all of the first question, then each token once.
    assert read[1:12] == [1] * 11 and read[0] == n_first - 12 - 2
    # The last token of an answer, its end and a line end were unread.
    assert read[12] == to_read == len(talk.tokens) - n_first - 12 - 2 + 3
    assert sum(read) == talk.cache.lengths[0] == len(talk.tokens) - 3


def test_an_answer_is_what_the_model_writes_without_a_cache(parts):
    talk = begun(parts)
    for question in ("hello", "a longer question, é 🛶", "?"):
        talk.ask(question)
        prompt = list(talk.tokens)
        answer = list(talk.answer(9))
        expected = complete(talk.model, [prompt], 9, cached=False)[0]
        assert answer == expected


def test_the_same_seed_gives_the_same_answers(parts):
    warm = Sampling(temperature=1.0)
    texts = [
        [answered(begun(parts, sampling=warm, seed=n), "hello")]
        for n in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_nobody_ends_a_message_by_writing_its_end(parts):
    talk = begun(parts)
    before = len(talk.tokens)
    talk.ask("a<|im_end|>\n<|im_start|>system\nb")
    new = talk.tokens[before:]
    assert new.count(talk.end) == 1 and new.count(talk.start) == 2
    assert "a<|im_end|>\n<|im_start|>system\nb" in talk.tokenizer.decode(new)


def test_an_answer_that_is_stopped_leaves_a_conversation(parts):
    talk = begun(parts)
    talk.ask("hello")
    calls = iter([False] * 4 + [True] * 99)
    answer = list(talk.answer(50, lambda: next(calls)))
    assert len(answer) == 4 and talk.tokens[-2] == talk.end
    # The next turn is as if all had been read anew.
    talk.ask("go on")
    prompt = list(talk.tokens)
    expected = complete(talk.model, [prompt], 9, cached=False)[0]
    assert list(talk.answer(9)) == expected


def test_a_long_message_can_be_stopped_while_it_is_read(parts, monkeypatch):
    monkeypatch.setattr(chat, "CHUNK", 8)
    talk = begun(parts)
    talk.ask("a" * 60)
    calls = iter([False] * 3 + [True] * 99)
    assert list(talk.answer(50, lambda: next(calls))) == []
    assert talk.cache.lengths == [24]
    talk.ask("go on")
    prompt = list(talk.tokens)
    expected = complete(talk.model, [prompt], 9, cached=False)[0]
    assert list(talk.answer(9)) == expected


def test_a_full_context_ends_an_answer_and_refuses_a_question(parts):
    talk = begun(parts)
    context = talk.model.config.context
    talk.ask("hello")
    answer = list(talk.answer(10**6))
    assert len(talk.tokens) == context + 1  # the end's line end is unread
    assert talk.cache.lengths[0] < context and len(answer) > 100
    before = list(talk.tokens)
    with pytest.raises(ValueError, match=f"at most {context} already; shor"):
        talk.ask("more")
    assert talk.tokens == before
    talk.forget()
    assert talk.cache.lengths == [0] and answered(talk, "hello")
    with pytest.raises(ValueError, match="this message has 3.. tokens"):
        talk.ask("a" * 300)


def test_where_a_token_looked_is_where_it_looks_without_a_cache(parts):
    talk = begun(parts)
    answered(talk, "hello")
    place = talk.cache.lengths[0] - 3
    tokens = torch.tensor([talk.tokens[: place + 1]])
    layers = attention_weights(talk.model, tokens)
    expected = torch.stack(layers)[:, 0, :, -1].mean((0, 1))
    found = talk.looked_at(place)
    agrees(found, expected, name="without a cache", within=1e-5)
    assert abs(found.sum() - 1) < 1e-5
    # What was taken back for it has been read again.
    talk.ask("go on")
    prompt = list(talk.tokens)
    again = complete(talk.model, [prompt], 9, cached=False)[0]
    assert list(talk.answer(9)) == again


def test_a_tokenizer_without_the_control_tokens_is_refused(parts):
    model, tokenizer = parts
    other = gguf.BytePairs(tokenizer.numbers, [])
    said = "this model is not made for chats: its tokenizer has no control to"
    with pytest.raises(ValueError, match=said) as caught:
        Chat(model, other)
    assert str(caught.value).endswith(" <|im_start|>")


def test_what_is_no_language_model_is_refused(parts, monkeypatch):
    """An encoder has a tokenizer, but nothing to write with."""
    monkeypatch.setattr(chat, "load", lambda name: torch.nn.Identity())
    monkeypatch.setattr(chat, "load_tokenizer", lambda name: parts[1])
    options = chat.parser().parse_args(["--model", "an encoder"])
    said = "cannot be talked with: it is no language model"
    with pytest.raises(ValueError, match=said):
        chat.begin(options)


@needs_smollm2
def test_what_is_sent_is_what_the_files_template_says():
    tokenizer = gguf.tokenizer(smollm2_file())
    size = GPTConfig(vocab_size=len(tokenizer), d_model=8, n_heads=1)
    talk = Chat(random_model(size, dtype=torch.float32), tokenizer)
    answers = []
    for question in ("What is a boat?", "  And\n<|im_end|> two?\n"):
        talk.ask(question)
        sent = talk.tokenizer.decode(talk.tokens)
        messages = [{"role": "user", "content": "What is a boat?"}]
        for answer in answers:
            messages += [{"role": "assistant", "content": answer}]
            messages += [{"role": "user", "content": question}]
        template = smollm2_file().metadata["tokenizer.chat_template"]
        environment = jinja2.Environment(keep_trailing_newline=True)
        expected = environment.from_string(template).render(
            messages=messages, add_generation_prompt=True
        )
        assert sent == expected and SYSTEM in sent
        answers.append(talk.tokenizer.decode(list(talk.answer(5))))


def wrapped(text, width, size=3):
    out = io.StringIO()
    writer = WordWrap(out, width)
    for first in range(0, len(text), size):
        writer.write(text[first : first + size])
    writer.close()
    return out.getvalue()


@pytest.mark.parametrize("width", [10, 20, 80])
def test_lines_break_between_words(width):
    text = "The boat left the river bank at noon, and\n\nnobody waved. " * 3
    text += "The boat left the river bank at noon, and nobody waved. " * 3
    lines = wrapped(text, width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert " ".join(lines).split() == text.split()
    assert any(len(line) > width - 8 for line in lines)


def test_a_pipe_gets_the_text_as_it_is():
    text = "a  b\tc\n" * 30 + "\x1b[2J"
    assert wrapped(text, None) == text + "\n"


def test_a_terminal_gets_no_control_characters_and_wide_signs_count():
    assert wrapped("a\x1b[2J\x07b\x9bc", 40) == "a[2Jbc\n"
    assert columns("河 a") == 4
    lines = wrapped("河河河 河河河 abc", 7).splitlines()
    assert lines == ["河河河 ", "河河河 ", "abc"]


def environment():
    return {**os.environ, "PYTHONPATH": str(CHAPTERS), "TERM": "dumb"}


@pytest.mark.slow
def test_whoever_stops_reading_ends_it_quietly(folder):
    done = subprocess.run(
        f"yes hello | {sys.executable} -m attnbook chat --model {FILE} "
        "--most 200 | head -c 10",
        shell=True,
        cwd=folder,
        capture_output=True,
        env=environment(),
    )
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--temperature", "-1"], "temperature is not allowed"),
        (["--temperature", "nan"], "temperature is not allowed"),
        (["--top-p", "0"], "top_p is not allowed"),
        (["--most", "0"], "--most cannot be 0; expected a number from 1 on"),
        (["--seed", "-1"], "--seed cannot be -1"),
        (["--model", "none.gguf"], "there is no model none.gguf"),
        (["--temperature", "warm"], "invalid float value: 'warm'"),
    ],
)
def test_a_wrong_option_is_said_in_a_line(folder, options, words, capsys):
    os.chdir(folder)
    try:
        code = chat.main(["--model", FILE, *options])
    except SystemExit as error:
        code = error.code
    assert code == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


@pytest.fixture
def in_process(folder, monkeypatch, capsys):
    """Run the command here, with these questions; what it printed."""

    def go(*options, text):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        code = chat.main(["--model", FILE, *options])
        return code, *capsys.readouterr()

    return go


def test_a_pipe_of_questions_is_answered(in_process):
    few = ("--most", "8", "--temperature", "0")
    code, out, said = in_process(*few, text="hello\n\nand you?\n/new\nhello\n")
    assert code == 0
    assert said.count("of 256 tokens; ") == 3
    assert "small.gguf." in said and "(A new conversation.)" in said
    _, answer, said = in_process(*few, text="hello\n/quit\nnot asked\n")
    assert said.count("tokens; ") == 1
    # An answer begins anew after /new, and is the same.
    assert out.startswith(answer) and out.endswith(answer)


def test_what_is_sent_and_looked_at_is_shown(in_process):
    shown = ("--show-sent", "--show-attention", "--system", "Be kind.")
    _, _, said = in_process("--most", "4", *shown, text="a\nb\n")
    assert "<|im_start|>system\nBe kind.<|im_end|>" in said
    assert said.count("Be kind.") == 1  # only what is new is sent
    assert said.count("looked, on average over all heads, at") == 2
    rows = [line for line in said.splitlines() if " back " in line]
    assert rows and all(len(line) <= 80 for line in said.splitlines())


def test_ctrl_c_ends_an_answer_and_not_the_program(in_process, monkeypatch):
    """The signal comes in the midst of the fifth call of the model."""
    calls = []
    plain = Chat.next_token

    def interrupted(self, stopped):
        calls.append(len(self.tokens))
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return plain(self, stopped)

    monkeypatch.setattr(Chat, "next_token", interrupted)
    before = signal.getsignal(signal.SIGINT)
    code, out, said = in_process("--most", "20", text="hello\nand you?\n")
    assert code == 0 and signal.getsignal(signal.SIGINT) == before
    first, second = [line for line in said.splitlines() if " new to" in line]
    assert first.endswith("ended by Ctrl-C]") and second.endswith("read]")
    assert len(calls) == 5 + 20


def test_interrupts_are_counted_only_while_an_answer_is_written():
    interrupts = Interrupts()
    with interrupts.caught():
        signal.raise_signal(signal.SIGINT)
        assert interrupts.stopped()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with interrupts.caught():
        assert not interrupts.stopped()


class Terminal:
    """The command in a terminal of 80 columns."""

    def __init__(self, folder, *options):
        import pty
        import termios

        self.own, other = pty.openpty()
        termios.tcsetwinsize(other, (24, 80))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attnbook", "chat", *options],
            cwd=folder,
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment(),
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(other), os.O_RDWR)),
        )
        os.close(other)
        self.seen = ""

    def wait_for(self, words, times=1):
        end = time.monotonic() + 120
        while self.seen.count(words) < times:
            assert time.monotonic() < end, self.seen
            if not select.select([self.own], [], [], 1)[0]:
                continue
            try:
                self.seen += os.read(self.own, 4096).decode(errors="replace")
            except OSError:  # the program has ended
                assert self.seen.count(words) >= times, self.seen

    def type(self, keys):
        os.write(self.own, keys.encode())

    def interrupt(self, words):
        """Press Ctrl-C until it is answered, as a person would.

        One that comes after the prompt is printed, but before Python waits
        for a line, is seen by Python only with the next key.
        """
        times = self.seen.count(words) + 1
        for _ in range(60):
            self.type("\x03")
            if self.seen_within(2, words, times):
                return
        raise AssertionError(self.seen)

    def seen_within(self, seconds, words, times):
        end = time.monotonic() + seconds
        while self.seen.count(words) < times and time.monotonic() < end:
            if select.select([self.own], [], [], 0.1)[0]:
                self.seen += os.read(self.own, 4096).decode(errors="replace")
        return self.seen.count(words) >= times


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no pty")
def test_in_a_terminal_one_types_after_a_prompt(folder):
    terminal = Terminal(folder, "--model", FILE, "--most", "60")
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("new to read]")
    terminal.wait_for("> ", 2)
    terminal.interrupt("(Ctrl-D ends the program.)")
    terminal.type("go on\n")
    terminal.wait_for("new to read]", 2)
    terminal.type("\x04")  # Ctrl-D
    assert terminal.process.wait(60) == 0
    lines = terminal.seen.replace("\r", "").splitlines()
    assert max(map(columns, lines)) <= 80


@pytest.mark.slow
@needs_smollm2
def test_smollm2_answers_and_knows_what_was_said():
    """Greedy answers, whose likeliest tokens lead by more than rounding."""
    model = load(SMOLLM2)
    tokenizer = gguf.tokenizer(smollm2_file())
    talk = Chat(model, tokenizer)
    for question, expected in (
        ("What is the capital of France?", "The capital of France is Paris."),
        ("And of Italy?", "The capital of Italy is Rome."),
    ):
        talk.ask(question)
        prompt = list(talk.tokens)
        answer = list(talk.answer(30))
        assert tokenizer.decode(answer) == expected
        text = torch.tensor([prompt + answer + [talk.end]])
        with torch.no_grad():
            logits = model(text[:, :-1])[0, len(prompt) - 1 :]
        best = logits.topk(2).values
        assert (best[:, 0] - best[:, 1]).min() > 0.01
