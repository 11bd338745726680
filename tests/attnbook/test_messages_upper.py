"""What is said when something cannot be: every message is a sentence for its
place, with what was expected, what came and, where it helps, what to do.

One row for each `raise` in the rooms on text, training, cache and server. The
messages of the moulds for numbers and ranges are in test_values.py.
"""

import ast
import dataclasses
import difflib
from pathlib import Path

import pytest
import torch
from models import random_model

import attnbook
from attnbook.batches import pack, windows
from attnbook.cache import KVCache, RollingCache
from attnbook.generate import generate
from attnbook.gpt import GPTConfig
from attnbook.prompts import check_prompt, pad_left
from attnbook.run import command, loop, places, processes
from attnbook.server import Server
from attnbook.speculative import Reader
from attnbook.town import Town
from attnbook.training import Recipe, make_optimizer, update
from attnbook.vocabulary import Vocabulary

CONFIG = GPTConfig(vocab_size=5, context=8, d_model=4, n_heads=1, n_layers=1)


def model(**changes):
    return random_model(dataclasses.replace(CONFIG, **changes))


def nan_model():
    broken = model()
    with torch.no_grad():
        broken.norm.bias[0] = torch.nan
    return broken


def cache():
    return KVCache(2, 3, n_layers=1, n_heads=1, d_k=4)


def ring():
    return RollingCache(2, 3, n_layers=1, n_heads=1, d_k=4)


def written(k=None, v=None):
    one = torch.ones(2, 1, 1, 4)
    kept = cache()
    kept.write(
        0, one if k is None else k, one if v is None else v, kept.place(2, 1)
    )


def server(broken=None, **options):
    return Server(broken or model(), n_pages=3, page_size=2, **options)


def served(**options):
    """Raise the error of a request that fails."""
    serving = server(**options)
    request = serving.submit([1], 3)
    serving.run()
    raise request.error


def forked():
    serving = server()
    serving.fork(serving.submit([1], 3), seed=0)


def diverged():
    recipe = Recipe(steps=9, warmup=0, peak=0.5)
    trained = model()
    optimizer = make_optimizer(trained, recipe)
    batch = torch.ones(1, 2).long(), torch.full((1, 2), -100)
    update(trained, optimizer, batch, 3, recipe)


def next_token(broken):
    return next(generate(broken, [[1, 2]], 3))


#: What is called, and the whole message.
MESSAGES = {
    "batches: a text no longer than the context": (
        lambda: windows([1, 2, 3], 3),
        "the text is too short; expected more tokens than the context's 3, "
        "since a piece needs 3 and one to follow; got 3",
    ),
    "batches: a packed text of one token": (
        lambda: pack([[[1, 2], [3]]], 4),
        "text 1 of row 0 is too short; expected at least two tokens, one to "
        "read and one to predict; got 1",
    ),
    "batches: texts that do not fit": (
        lambda: pack([[[1, 2, 3], [4, 5, 6]]], 3),
        "the texts of row 0 do not fit; expected at most the context's 3 "
        "places; got 4 up to text 1",
    ),
    "cache: another number of rows": (
        lambda: cache().place(3, 1),
        "the batch does not fit the cache; expected 2 rows, as the cache "
        "has; got 3",
    ),
    "cache: no room": (
        lambda: cache().place(2, 4),
        "the cache is too small; expected at most 3 tokens in a row; got 0 + "
        "4 in row 0",
    ),
    "cache: another device": (
        lambda: written(k=torch.ones(2, 1, 1, 4, device="meta")),
        "the keys are on another device than the cache; expected cpu; got "
        "meta",
    ),
    "cache: gradients": (
        lambda: written(v=torch.ones(2, 1, 1, 4, requires_grad=True)),
        "the values record gradients, which a cache cannot keep; expected a "
        "call under torch.inference_mode() or torch.no_grad(); got "
        "requires_grad=True",
    ),
    "cache: another number of rows of a ring": (
        lambda: ring().place(3, 1),
        "the batch does not fit the cache; expected 2 rows, as the cache "
        "has; got 3",
    ),
    "cache: padding in a ring": (
        lambda: ring().place(2, 1, torch.ones(2, 1)),
        "a rolling cache takes no padding, since all its rows have one "
        "length; expected texts of equal length and no mask of real tokens; "
        "got one",
    ),
    "cache: a ring that is to go back": (
        lambda: ring().trim(2),
        "a rolling cache cannot go back, since older keys have been "
        "overwritten; expected 0, to forget all; got 2",
    ),
    "generate: no prompts": (
        lambda: generate(model(), [], 5),
        "there are no prompts; expected a list of at least one prompt, each "
        "a list of token numbers; got an empty list",
    ),
    "generate: nothing to pad": (
        lambda: pad_left([]),
        "there are no prompts; expected at least one; got []",
    ),
    "generate: an empty prompt": (
        lambda: generate(model(), [[1], []], 5),
        "prompt 1 has no tokens; expected at least one for the model to go "
        "on from; got an empty list",
    ),
    "generate: a prompt that is no list": (
        lambda: generate(model(), [1, 2], 5),
        "prompt 0 is of the wrong type; expected a list of token numbers, "
        "such as [1, 2]; got 1",
    ),
    "generate: an unknown token": (
        lambda: generate(model(), [[1, 2], [3, 5]], 5),
        "token 1 of prompt 1 is not allowed; expected a whole number, at "
        "least 0, below 5; got 5",
    ),
    "generate: dropout": (
        lambda: generate(model(dropout=0.5).train(), [[1]], 5),
        "the model is in training mode, where its dropout of 0.5 changes "
        "every pass at random; expected evaluation mode: call model.eval() "
        "first",
    ),
    "generate: a stop token that is no number": (
        lambda: check_prompt("the prompt", [1], model(), 1, ["."]),
        "token 0 of stop is of the wrong type; expected a whole number, at "
        "least 0, below 5; got '.'",
    ),
    "generate: NaN": (
        lambda: next_token(nan_model()),
        "the model's logits are NaN after token 2 of row 0; expected "
        "numbers: look for NaN in the weights, or for a layer that overflows "
        "in half precision",
    ),
    "server: too long for the model": (
        lambda: server().submit([1, 2, 3], 7),
        "the text's length would be 9 without its last token; expected at "
        "most 8, the model's context; got 3 in the prompt and 7 to write",
    ),
    "server: too long for the pages": (
        lambda: server().submit([1, 2, 3], 5),
        "the text would need room for 7 tokens; expected at most 6, which is "
        "what 3 pages of 2 hold; got 3 in the prompt and 5 to write",
    ),
    "server: a fork of one that waits": (
        forked,
        "only a running request can be forked, because a fork shares its "
        "pages; expected running; got 'waiting'",
    ),
    "server: NaN": (
        lambda: served(broken=nan_model()),
        "the model's logits are NaN after 1 tokens of this request; expected "
        "numbers; got NaN",
    ),
    "server: what is accepted": (
        lambda: served(accept=lambda request, guesses, logits: []),
        "accept has given tokens that it was not offered; expected the first "
        "few of [], or none, and one more token; got []",
    ),
    "speculative: NaN": (
        lambda: Reader(nan_model())([1, 2]),
        "the model's logits are NaN after a text of 2 tokens; expected "
        "numbers; got nan",
    ),
    "town: an impossible word": (
        lambda: Town().next_words(["<s>", "the", "sea"]),
        "no story has word 2 (counted from 0) like this; expected one of "
        "['boat', 'robbers', 'fisher', 'children', 'baker', 'miller', ...]; "
        "got 'sea'",
    ),
    "training: diverged": (
        diverged,
        "the loss or the gradient of step 3 is not finite; expected finite "
        "numbers; got a loss of nan and a gradient of length 0. The "
        "weights stay as they were. If the loss has grown before, try a "
        "lower learning rate than the peak of 0.5",
    ),
    "vocabulary: no tokens": (
        lambda: Vocabulary([]),
        "a vocabulary needs tokens; expected at least one; got none",
    ),
    "vocabulary: a token twice": (
        lambda: Vocabulary("aba"),
        "a vocabulary cannot have such a token; expected single characters, "
        "or words without spaces, each of them once; got 'a'",
    ),
    "vocabulary: an empty text": (
        lambda: Vocabulary("ab").encode(""),
        "the text has no tokens; expected at least one; got ''",
    ),
    "vocabulary: an unknown token": (
        lambda: Vocabulary("ab").encode("abc"),
        "'c' is no token of the vocabulary; expected one of its 2: ['a', 'b']",
    ),
    "run: processes that cannot share": (
        lambda: loop._check_shares(12, 2, 4),
        "the processes cannot share a batch; expected a batch_size that is a "
        "multiple of 8, the processes times the pieces of a batch "
        "(accumulation); got 12",
    ),
    "run: no such device": (
        lambda: processes.usable_device("abacus"),
        "the device cannot be used; expected cpu, or cuda or cuda:N where "
        "there is such a card; got abacus",
    ),
    "run: no folder": (
        lambda: place(Path("none/model")),
        "there is no folder none; expected one for model; got none",
    ),
    "run: the text itself": (
        lambda: place(Path(__file__), Path(__file__)),
        f"{__file__} is the text itself, which would be lost; expected the "
        "name of another file, which --out chooses",
    ),
    "run: a folder": (
        lambda: place(Path(".")),
        ". is a folder; expected the name of a file, which --out chooses",
    ),
    "run: a file that exists": (
        lambda: place(Path(__file__)),
        f"{__file__} exists; expected a name that is free. Do this or that",
    ),
    "run: a folder for a text": (
        lambda: command.read_text(Path(".")),
        ". is a folder; expected a file of plain text",
    ),
    "run: no text": (
        lambda: command.read_text(Path("none.txt")),
        "there is no file none.txt; expected one of plain text in UTF-8",
    ),
    "run: too short a text": (
        lambda: command._check_length(Path("my.txt"), 100, 90, 128),
        "my.txt is too short: of its 100 characters the last 10 are held out "
        "to measure the loss; expected more than 128 in the rest, which is "
        "the model's context (--context); got 90",
    ),
    "run: heads of an odd width": (
        lambda: command.check_head_width(
            dataclasses.replace(CONFIG, positions="rotary", n_heads=4)
        ),
        "--d-model 4 shared by --n-heads 4 gives heads of width 1; expected "
        "an even width, since rotary positions turn pairs of numbers "
        "(--positions)",
    ),
}


def place(path, text=None):
    instead = "Do this or that"
    places.check_place(path, text, replace=False, instead=instead)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_is_this_sentence(name):
    call, message = MESSAGES[name]
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        call()
    assert str(caught.value) == message


#: Messages that need a folder, a file or a second run to be seen; the test
#: that holds each is named.
ELSEWHERE = {
    "another run writes": "test_two_runs_on_one_file_are_refused_in_one_line",
    "cannot be written; expected leave": "test_what_cannot_be_written_is_foun",
    "is of another run; expected ": "test_a_checkpoint_is_judged_whole_before",
    "cannot be resumed; expected ": "test_a_checkpoint_is_judged_whole_before",
    "is damaged: its numbers": "test_one_flipped_bit_is_noticed",
    "is no text; expected UTF-8": "test_a_wrong_command_is_one_line",
    "is empty; expected a text": "test_a_wrong_command_is_one_line",
    "does not know all characters": "test_a_model_is_trained_on_only_as_it_is",
    "a model keeps its sizes": "test_a_model_is_trained_on_only_as_it_is",
    "has no vocabulary; expected": "test_what_cannot_be_is_one_line",
    "is not the model of this run": "test_a_resumed_run_overwrites_no_finish",
    "the run does not fit into memory": "test_a_wrong_command_is_one_line",
}
ROOMS = (
    "batches",
    "cache",
    "generate",
    "pages",
    "prompts",
    "server",
    "speculative",
    "text",
    "town",
    "training",
    "vocabulary",
    "run/checkpoints",
    "run/command",
    "run/loop",
    "run/options",
    "run/places",
    "run/processes",
    "run/sample",
)


def literals(error):
    """The fixed parts of the message of an error that is made."""
    return [
        node.value
        for argument in error.args
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_every_message_of_a_room_is_held(room):
    """By its longest fixed part, which is in a message above; or elsewhere."""
    path = Path(attnbook.__file__).parent / f"{room}.py"
    said = [message for _, message in MESSAGES.values()]
    tests = "".join(
        file.read_text("utf-8")
        for file in Path(__file__).parent.glob("**/test_*.py")
    )
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        is_error = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id.endswith("Error")
        )
        if not is_error:
            continue
        longest = max(literals(node), key=len)
        held = any(longest in message for message in said)
        for part, test in ELSEWHERE.items():
            if any(part in text for text in literals(node)):
                assert f"def {test}" in tests
                held = True
        assert held, f"line {node.lineno}: {longest}"


#: Rooms whose own tests look at their messages, since most of them need a
#: file that is damaged in some way, or a tokenizer.
OWN = {
    "allowed": ("test_allowed",),
    "byte_pairs": ("test_byte_pairs", "test_gguf"),
    "chat": ("test_chat",),
    "collectives": ("test_collectives",),
    "data_parallel": ("test_data_parallel",),
    "encoder": ("test_encoder",),
    "experts": ("test_experts",),
    "gguf": ("test_gguf",),
    "gguf_layout": ("test_gguf",),
    "placed": ("test_placed", "test_typed"),
    "published": ("test_published",),
    "ring": ("test_ring",),
    "run/hands": ("run/test_hands",),
    "tensor_parallel": ("test_tensor_parallel",),
    "typed": ("test_typed",),
    "wire": ("test_wire", "run/test_hands"),
}


def unseen(room_source, test_sources):
    """The messages of a room of which no test expects a part.

    A test expects a part of one if the fixed parts of the message cover three
    quarters of a text in the test; the rest of the text are the values.
    """
    expected = {
        node.value
        for source in test_sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for node in ast.walk(ast.parse(room_source)):
        if not (
            isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        ):
            continue
        parts = literals(node.exc)
        if not parts:
            continue  # a sentence that another function has made
        whole = "\0".join(parts)
        held = False
        for text in expected:
            if len(text) >= 8:
                blocks = difflib.SequenceMatcher(
                    None, text, whole, autojunk=False
                ).get_matching_blocks()
                covered = sum(b.size for b in blocks if b.size > 3)
                held = held or covered >= 0.75 * len(text)
        if not held:
            yield whole


@pytest.mark.parametrize("room", OWN)
def test_every_message_of_a_room_is_expected_by_its_tests(room):
    here = Path(__file__).parent
    house = Path(attnbook.__file__).parent
    tests = [(here / f"{t}.py").read_text("utf-8") for t in OWN[room]]
    source = (house / f"{room}.py").read_text("utf-8")
    assert [*unseen(source, tests)] == []


def listed(path):
    """The rooms that a file of tests lists as its `ROOMS`."""
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="ROOMS")], value=rooms):
                return [
                    part.value
                    for part in ast.walk(rooms)
                    if isinstance(part, ast.Constant)
                ]
    raise LookupError(path)


def refuses(source):
    """Whether a room raises an error with a message of its own, or lets a
    mould for numbers and ranges do it."""
    moulds = ("whole", "number", "one_of", "check_sizes")
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and (node.func.id.endswith("Error") or node.func.id in moulds)
        for node in ast.walk(ast.parse(source))
    )


def test_the_messages_of_every_room_are_held():
    """Here, in test_messages.py, or by the tests of the room itself."""
    house = Path(attnbook.__file__).parent
    lower = listed(Path(__file__).with_name("test_messages.py"))
    held = {*lower, *listed(Path(__file__)), *OWN}
    rooms = {
        path.relative_to(house).with_suffix("").as_posix(): path
        for folder in (house, house / "run")
        for path in folder.glob("[a-z]*.py")
    }
    with_messages = {
        name
        for name, path in rooms.items()
        if refuses(path.read_text("utf-8"))
    }
    assert with_messages - held == set()
    assert held - {*rooms} == set()


def test_a_message_that_no_test_expects_is_found():
    source = "raise ValueError(f'the box has {n} lids; expected one')"
    seen = "with pytest.raises(ValueError, match='has 3 lids; expected'): f()"
    other = "with pytest.raises(ValueError, match='has no lock'): f()"
    assert [*unseen(source, [seen])] == []
    assert len([*unseen(source, [other])]) == 1
