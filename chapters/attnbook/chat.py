"""`python -m attnbook chat`: talk with a published model in a terminal.

What a chat sends is one long text. Each message stands between two control
tokens, with the name of who speaks in front:

    <|im_start|>user
    What is the capital of France?<|im_end|>
    <|im_start|>assistant

and the model writes on from there, until it writes <|im_end|> itself. This is
the chat template that lies in SmolLM2's file ("ChatML"); `--show-sent` prints
what is really sent. Keys and values of all that has been read stay in the
cache, so each turn reads only what is new in it.
"""

from __future__ import annotations

import argparse
import codecs
import shutil
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import numpy as np
import torch

from attnbook.byte_pairs import BytePairs
from attnbook.generate import Sampling
from attnbook.gpt import GPT
from attnbook.layers import attention_weights
from attnbook.pretrained import load, load_tokenizer
from attnbook.published import PUBLISHED

MODEL = "SmolLM2-135M-Instruct"
#: What the template puts first if nothing else is said.
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
START = "<|im_start|>"
END = "<|im_end|>"
#: How tokens are chosen if nothing is said.
LIKELIEST = Sampling()
#: Tokens that are read at once, so that Ctrl-C need not wait for a long text.
CHUNK = 256
#: Tokens that the cache has room for at first.
ROOM = 512


class Chat:
    """A conversation: all its tokens, and a cache of those that were read.

    Raises:
        ValueError: a tokenizer that has not the template's control tokens.
    """

    def __init__(
        self,
        model: GPT,
        tokenizer: BytePairs,
        *,
        sampling: Sampling = LIKELIEST,
        seed: int = 0,
        system: str = SYSTEM,
    ) -> None:
        for name in (START, END):
            if name not in tokenizer.special:
                raise ValueError(
                    f"this model is not made for chats: its tokenizer has no "
                    f"control token {name}"
                )
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.system = system
        self.start = tokenizer.special[START]
        self.end = tokenizer.special[END]
        self.chance = np.random.default_rng(seed)
        self.cache = model.new_cache(1, min(ROOM, model.config.context))
        self.tokens: list[int] = []
        self.forget()

    def forget(self) -> None:
        """Begin a new conversation, of which the model has read nothing yet.

        The system's message is put at the beginning again; the cache is
        emptied.
        """
        self.cache.reset()
        self.tokens = self.message("system", self.system)

    def message(self, role: str, text: str) -> list[int]:
        """The tokens of a message. Its text is read as plain characters, so
        that nobody can end a message by writing <|im_end|>."""
        inside = self.tokenizer.encode(f"{role}\n{text}")
        return [self.start, *inside, self.end, *self.tokenizer.encode("\n")]

    def ask(self, text: str) -> int:
        """Add a message of the user's, and begin the answer.

        Returns how many tokens are still to be read.

        Raises:
            ValueError: the context has no room for it; nothing is added.
        """
        tokens = self.message("user", text)
        tokens += [self.start, *self.tokenizer.encode("assistant\n")]
        context = self.model.config.context
        if len(self.tokens) + len(tokens) > context - 1:
            raise ValueError(
                f"this message has {len(tokens)} tokens, and the conversation "
                f"{len(self.tokens)} of at most {context} already; shorten "
                "it, or begin anew with /new"
            )
        self.tokens += tokens
        return len(self.tokens) - self.cache.lengths[0]

    def answer(
        self, most: int, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[int]:
        """Write the answer, token by token, without the <|im_end|> after it.

        It ends when the model ends it, after `most` tokens, when the context
        is full, or when `stopped` says so. However it ends, the conversation
        can go on.
        """
        context = self.model.config.context
        for _ in range(most):
            if len(self.tokens) >= context - 1:
                break
            token = self.next_token(stopped)
            if token in (None, self.end):
                break
            self.tokens.append(token)
            yield token
        self.tokens += [self.end, *self.tokenizer.encode("\n")]

    @torch.inference_mode()
    def next_token(self, stopped: Callable[[], bool]) -> int | None:
        """Read what is unread, and choose the token after it.

        Returns None if `stopped` says so before all is read.
        """
        if len(self.tokens) > self.cache.capacity:
            self.cache.grow(2 * len(self.tokens))
        unread = self.tokens[self.cache.lengths[0] :]
        for first in range(0, len(unread), CHUNK):
            if stopped():
                return None
            chunk = torch.tensor([unread[first : first + CHUNK]])  # (1, T)
            logits = self.model(chunk, cache=self.cache, last=True)
        chosen = self.sampling.choose(
            logits[:, 0], [self.tokens], [self.chance]
        )
        return int(chosen)

    @torch.inference_mode()
    def looked_at(self, place: int) -> torch.Tensor:
        """Where the token at a place looked: its weights, (place + 1,), as
        the mean over all blocks and heads. The token must have been read."""
        read = self.cache.lengths[0]
        self.cache.trim(place)
        token = torch.tensor([self.tokens[place : place + 1]])
        layers = attention_weights(self.model, token, cache=self.cache)
        heads = torch.stack(layers)[:, 0, :, 0]  # (L, H, S)
        again = self.tokens[place + 1 : read]
        if again:  # what stood after it was taken back too
            self.model(torch.tensor([again]), cache=self.cache, last=True)
        return heads.mean((0, 1))


class WordWrap:
    """Writes a text as it comes, and breaks lines between words.

    Without a width, text goes out as it is. With one, it goes to a terminal:
    a word waits until it is whole, and control characters, which could do
    anything to a terminal, are left out.
    """

    def __init__(self, out: TextIO, width: int | None) -> None:
        self.out = out
        self.width = width
        self.column = 0
        self.word = ""

    def write(self, text: str) -> None:
        """Take a piece of text, and write the words of it that are complete.

        A piece may end in the middle of a word, so the last word is kept back
        until a space or the end of the line is seen.
        """
        if self.width is None:
            self.out.write(text)
        else:
            for character in text:
                self._take(character)
        self.out.flush()

    def close(self) -> None:
        """Write the word that was kept back, and end the line."""
        self._end_word()
        self.out.write("\n")
        self.out.flush()
        self.column = 0

    def _take(self, character):
        """Take one character of the text; control characters are left out.

        A terminal would obey some of them, and a model may write any.
        """
        if character == "\n":
            self._end_word()
            self.out.write("\n")
            self.column = 0
        elif character in " \t":
            self._end_word()
            if self.column < self.width:
                self.out.write(" ")
                self.column += 1
        elif unicodedata.category(character) != "Cc":
            self.word += character

    def _end_word(self):
        """Write a word that is complete, on a new line if it does not fit."""
        size = columns(self.word)
        if self.column and self.column + size > self.width:
            self.out.write("\n")
            self.column = 0
        self.out.write(self.word)
        self.column += size
        self.word = ""


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide sign.

    >>> columns("river"), columns("河")
    (5, 2)
    """
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide


class Interrupts:
    """Counts Ctrl-C while an answer is written, instead of being stopped by
    it in the middle of a step."""

    def __init__(self) -> None:
        self.seen = False

    def stopped(self) -> bool:
        """Whether Ctrl-C was pressed since `caught` was last entered."""
        return self.seen

    @contextmanager
    def caught(self) -> Iterator[None]:
        """A context in which a Ctrl-C is noted and does not raise an error.

        The answer that is being written can then end at a whole token, and the
        conversation goes on.
        """
        self.seen = False

        def see(number, frame):
            self.seen = True

        before = signal.signal(signal.SIGINT, see)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def questions(interactive: bool) -> Iterator[str]:
    """The lines that somebody types, or that a pipe brings, to the end."""
    while True:
        try:
            line = input("> ") if interactive else sys.stdin.readline()
        except EOFError:
            return
        except KeyboardInterrupt:
            print("\n(Ctrl-D ends the program.)", file=sys.stderr)
            continue
        if not interactive and not line:
            return
        if line.strip() == "/quit":
            return
        if line.strip():
            yield line.strip()


def tell(text: str) -> None:
    """A line beside the answers, which go to standard output alone."""
    print(text, file=sys.stderr, flush=True)


def take_turn(
    chat: Chat,
    question: str,
    out: WordWrap,
    interrupts: Interrupts,
    options: argparse.Namespace,
) -> None:
    """One question and its answer, with what is told about them."""
    to_read = chat.ask(question)
    if options.show_sent:
        tell(chat.tokenizer.decode(chat.tokens[-to_read:]))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first = len(chat.tokens)
    with interrupts.caught():
        for token in chat.answer(options.most, interrupts.stopped):
            part = chat.tokenizer.decode_bytes([token])
            out.write(decoder.decode(part))
    out.write(decoder.decode(b"", final=True))
    out.close()
    last = chat.cache.lengths[0] - 1
    if options.show_attention and last >= first:
        tell(attention_lines(chat, last))
    tell(
        f"[{len(chat.tokens):,} of {chat.model.config.context:,} tokens; "
        f"{to_read} were new to read"
        + (", ended by Ctrl-C]" if interrupts.seen else "]")
    )


def attention_lines(chat: Chat, place: int) -> str:
    """The five tokens that a token looked at most, each with its share."""
    weights = chat.looked_at(place)
    shown = repr(chat.tokenizer.decode(chat.tokens[place : place + 1]))
    lines = [f"{shown} looked, on average over all heads, at"]
    for at in weights.topk(min(5, len(weights))).indices.tolist():
        name = repr(chat.tokenizer.decode(chat.tokens[at : at + 1]))
        back = place - at
        where = f"{back} back" if back else "itself"
        if at == 0:
            where = "the first token of all"
        bar = "#" * round(30 * weights[at].item())
        lines.append(f"{weights[at]:6.2f}  {name[:20]:20} {where:22} {bar}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The parser of the command's options, with the help for each of them."""
    found = argparse.ArgumentParser(
        "python -m attnbook chat",
        description="Talk with a published language model.",
        epilog="Ctrl-C ends an answer, Ctrl-D or /quit the program; /new "
        "begins a new conversation. Without a terminal, each line of the "
        "input is a question.",
    )
    add = found.add_argument
    add("--model", default=MODEL, help="a model for chats, or its GGUF file")
    add(
        "--temperature",
        type=float,
        default=0.2,
        help="0: always the likeliest token (0.2)",
    )
    add("--top-p", type=float, default=0.9, help="share that is kept (0.9)")
    add("--seed", type=int, default=0, help="another gives other answers (0)")
    add("--most", type=int, default=512, help="tokens of an answer (512)")
    add("--system", default=SYSTEM, help="what the model is told first")
    add(
        "--show-attention",
        action="store_true",
        help="show where each answer's last token looked",
    )
    add(
        "--show-sent",
        action="store_true",
        help="show what is sent, with its control tokens",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `python -m attnbook chat`, and return its exit code.

    It is 0 when the conversation was ended, and 2 for an error that the user
    can mend, of which one line is printed.

    Args:
        arguments: what was typed after `chat`; those of this process if not
            given.
    """
    options = parser().parse_args(arguments)
    try:
        chat = begin(options)
    except (OSError, TypeError, ValueError) as error:
        tell(str(error))
        return 2
    for stream in (sys.stdin, sys.stdout):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    out = WordWrap(sys.stdout, width)
    interrupts = Interrupts()
    try:
        for question in questions(sys.stdin.isatty()):
            if question == "/new":
                chat.forget()
                tell("(A new conversation.)")
                continue
            try:
                take_turn(chat, question, out, interrupts, options)
            except ValueError as error:
                tell(str(error))
    except BrokenPipeError:  # whoever read the answers has gone
        sys.stderr.close()
    return 0


def begin(options: argparse.Namespace) -> Chat:
    """The model, loaded, and told to whoever talks with it.

    Raises:
        FileNotFoundError: the model is not there.
        ValueError: an option out of its range; a model that is no chat's.
    """
    sampling = Sampling(temperature=options.temperature, top_p=options.top_p)
    for name in ("seed", "most"):
        if getattr(options, name) < (name == "most"):
            raise ValueError(
                f"--{name} cannot be {getattr(options, name)}; expected a "
                f"number from {int(name == 'most')} on"
            )
    tokenizer = load_tokenizer(options.model)
    model = load(options.model)
    if not isinstance(model, GPT) or not isinstance(tokenizer, BytePairs):
        raise ValueError(
            f"{options.model} cannot be talked with: it is no language model "
            "whose tokenizer this program reads"
        )
    chat = Chat(
        model,
        tokenizer,
        sampling=sampling,
        seed=options.seed,
        system=options.system,
    )
    known = PUBLISHED.get(options.model)
    by = f", trained by {known.trained_by}" if known else ""
    tell(
        f"{options.model}{by}.\nIt is a small model, and often wrong. Ctrl-C "
        "ends an answer, Ctrl-D the program;\n/new begins a new conversation."
    )
    return chat
