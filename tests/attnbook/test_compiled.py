"""Compiled steps: the plain model's texts, one program, no copied cache."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.fx.experimental.proxy_tensor import make_fx

from attnbook import compiled
from attnbook.compiled import compile_steps
from attnbook.fast import EightBitLinear, pack
from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig

SIZES = {
    "vocab_size": 37,
    "context": 40,
    "d_model": 24,
    "n_heads": 4,
    "n_layers": 2,
    "initial_std": 0.2,
}
KINDS = {
    "gpt2": {},
    "alibi": {"positions": "alibi"},
    "llama": {
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "n_kv_heads": 2,
        "bias": False,
        "tied": False,
        "d_ff": 50,
    },
}
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]


@pytest.fixture(autouse=True)
def forget():
    """Programs of other tests do not count towards those of this one."""
    torch._dynamo.reset()


@pytest.fixture(params=KINDS, ids=str)
def model(request):
    return new_model(request.param)


def new_model(kind, **sizes):
    torch.manual_seed(5)
    return GPT(GPTConfig(**SIZES | KINDS[kind] | sizes)).eval()


def test_a_recorded_step_writes_the_plain_text(model):
    """Rows of different lengths; the text outgrows its window, too."""
    programs = CompileCounter()
    fast = compile_steps(model, programs)
    assert complete(fast, PROMPTS, 60) == complete(model, PROMPTS, 60)
    assert programs.frame_count == 1


def test_a_recorded_step_in_8_bits_writes_the_same_text():
    """The layers keep whole numbers, which the program is given, too."""
    eight = pack(new_model("llama"), EightBitLinear)
    programs = CompileCounter()
    fast = compile_steps(eight, programs)
    for prompts, expected in ((PROMPTS[:1], 2), (PROMPTS, 4)):
        assert complete(fast, prompts, 20) == complete(eight, prompts, 20)
        assert programs.frame_count == expected  # of a block, and of the head


def test_one_program_is_for_one_row_and_one_for_more():
    """It is no other one for another length, nor for another cache."""
    model = new_model("llama")
    programs = CompileCounter()
    fast = compile_steps(model, programs)
    for prompts, expected in ((1, 1), (3, 2), (2, 2), (5, 2), (1, 2)):
        texts = (PROMPTS * 2)[:prompts]
        assert complete(fast, texts, 9) == complete(model, texts, 9)
        assert programs.frame_count == expected


def test_programs_of_one_model_leave_room_for_those_of_another():
    """Torch makes few programs of one function. What is over the limit is
    computed by plain calls, and said."""
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(2):
            fast = compile_steps(new_model("gpt2"), CompileCounter())
            complete(fast, PROMPTS[:1], 3)
            assert fast.is_compiled
        plain = complete(new_model("gpt2"), PROMPTS, 3)
        with pytest.warns(UserWarning, match="plain calls from now on"):
            assert complete(fast, PROMPTS, 3) == plain
        assert not fast.is_compiled


def test_a_model_of_another_size_is_compiled_after_the_first():
    """Torch takes a size that has changed for one that is never the same, and
    a block cannot be compiled so. Another number of heads is what shows it:
    where the width alone is another one, torch finds it by the weights."""
    for width, heads in ((24, 4), (32, 2), (24, 4)):
        model = new_model("gpt2", d_model=width, n_heads=heads)
        fast = compile_steps(model, CompileCounter())
        assert complete(fast, PROMPTS, 4) == complete(model, PROMPTS, 4)
        assert fast.is_compiled


def steps_of(model, tokens, cache):
    """The logits of each token, read one by one after the first two."""
    with torch.inference_mode():
        model(tokens[:, :2], cache=cache)
        read = [
            model(token, cache=cache) for token in tokens[:, 2:].split(1, 1)
        ]
    return torch.cat(read, 1)


def test_a_compiled_step_gives_the_plain_logits():
    """In C++ as it comes: the one test that waits for a compiler."""
    if compiled.why_not(torch.device("cpu")) is not None:
        pytest.skip("there is no C++ compiler")
    model = new_model("llama")
    fast = compile_steps(model)
    tokens = torch.arange(20).reshape(2, 10)
    a, b = model.new_cache(2), model.new_cache(2)
    found = steps_of(fast, tokens, a)
    torch.testing.assert_close(
        found, steps_of(model, tokens, b), atol=2e-5, rtol=2e-5
    )
    assert fast.is_compiled
    torch.testing.assert_close(a.keys, b.keys, atol=2e-5, rtol=2e-5)
    assert a.lengths == b.lengths and a.bytes_copied == b.bytes_copied


def test_the_cache_is_written_where_it_is():
    """Not one byte of it is copied, and other slots are not touched."""
    model = new_model("llama")
    fast = compile_steps(model, CompileCounter())
    cache = fast.new_cache(2)
    tokens = torch.arange(10).reshape(2, 5)
    steps_of(fast, tokens[:, :4], cache)
    memory, before = cache.keys.data_ptr(), cache.keys.clone()
    written = cache.bytes_copied
    with torch.inference_mode():
        fast(tokens[:, 4:], cache=cache)
    assert cache.keys.data_ptr() == memory
    changed = (cache.keys != before).any(-1)  # (L, B, H_kv, C)
    assert changed.sum((0, 1, 2)).tolist() == [0] * 4 + [8] + [0] * 35
    assert cache.bytes_copied - written == 2 * 8 * 6 * 4


def test_other_calls_are_the_plain_models():
    """Prompts, padding and gradients: what the program was not made for."""
    model = new_model("gpt2")
    programs = CompileCounter()
    fast = compile_steps(model, programs)
    tokens = torch.arange(8).reshape(2, 4)
    real = torch.tensor([[False, True, True, True]] * 2)
    with torch.inference_mode():
        assert torch.equal(fast(tokens, real=real), model(tokens, real=real))
        assert torch.equal(fast(tokens[:, :1]), model(tokens[:, :1]))
        cache = fast.new_cache(2)
        fast(tokens[:, :1], cache=cache)  # a prompt of one token
    assert fast(tokens).requires_grad
    with pytest.raises(TypeError, match="record gradients"):
        fast(tokens[:, :1], cache=cache)
    assert programs.frame_count == 0
    assert fast.blocks is model.blocks


def test_a_full_cache_and_a_full_table_are_refused_as_before():
    fast = compile_steps(new_model("gpt2"), CompileCounter())
    with torch.inference_mode():
        for capacity, what in ((2, "cache is too small"), (41, "context")):
            cache = fast.new_cache(1, capacity)
            fast(torch.ones(1, min(capacity, 40), dtype=int), cache=cache)
            before = list(cache.lengths)
            with pytest.raises(ValueError, match=what):
                fast(torch.ones(1, 1, dtype=int), cache=cache)
            with pytest.raises(ValueError, match="not in the model's voc"):
                fast(torch.full((1, 1), 37), cache=cache)
            assert cache.lengths == before


def broken(*_):
    raise RuntimeError("no such header: omp.h")


def test_without_a_compiler_the_plain_steps_go_on(monkeypatch):
    model = new_model("gpt2")
    fast = compile_steps(model, broken)
    with pytest.warns(UserWarning, match=r"plain calls from now on.*omp\.h"):
        assert complete(fast, PROMPTS, 9) == complete(model, PROMPTS, 9)
    monkeypatch.setattr(compiled, "why_not", lambda _: "there is none")
    with pytest.warns(UserWarning, match="plain calls, because there is none"):
        assert compile_steps(model) is model


def test_a_model_in_training_is_refused():
    with pytest.raises(ValueError, match="in training mode"):
        compile_steps(new_model("gpt2").train())


# What people get wrong. Each of the three is tried on the same model.


def test_a_number_of_tokens_in_the_program_makes_a_new_one_each_time():
    """Mistake: the length is a Python number, so each is a new program."""
    programs = CompileCounter()

    def attend(q, memory, length):  # wrong: `length` is built in
        return (memory[:length] @ q).softmax(0) @ memory[:length]

    step = torch.compile(attend, backend=programs, dynamic=False)
    memory = torch.ones(16, 4)
    for length in range(3, 8):
        step(memory[0], memory, length)
    assert programs.frame_count == 5


def test_a_recorded_position_stays_the_old_one():
    """Mistake: what was a number when the step was recorded is one for good,
    so that all later tokens are written into the slot of the first."""
    memory = torch.zeros(6)
    positions = iter(range(6))

    def write(x):  # wrong: the position is read from outside
        memory[next(positions)] = x[0]
        return memory

    recorded = make_fx(write)(torch.ones(1))
    memory.zero_()
    for n in range(3):
        recorded(torch.tensor([n + 1.0]))
    assert memory.tolist() == [3, 0, 0, 0, 0, 0]


def test_a_cache_that_is_put_together_is_copied():
    """Mistake: `cat` makes a new cache of the old one at every step."""
    old = torch.zeros(1, 2, 5, 4)
    new = torch.ones(1, 2, 1, 4)
    assert torch.cat([old, new], 2).data_ptr() != old.data_ptr()
    layer = compiled._LayerSlots(old, old.clone(), torch.tensor([3]))
    keys, _ = layer.extend(new, new)
    assert keys.data_ptr() == old.data_ptr()
    assert old[0, 0, :, 0].tolist() == [0, 0, 0, 1, 0]
