"""Packed models: the plain model's numbers, and what 8 bits lose."""

import pytest
import torch
from attnbook.fast import Int8Linear, PackedLinear, pack, replace_linear
from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig
from torch import nn

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
    "alibi": {"positions": "alibi", "bias": False},
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


@pytest.fixture(params=KINDS, ids=str)
def model(request):
    torch.manual_seed(5)
    model = GPT(GPTConfig(**SIZES, **KINDS[request.param])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def draw_tokens(*shape):
    return torch.randint(37, shape, generator=torch.Generator().manual_seed(1))


def linears(module):
    return [m for m in module.modules() if type(m) is nn.Linear]


def test_packed_gives_the_plain_numbers(model):
    tokens = draw_tokens(3, 11)
    real = torch.arange(11) >= torch.tensor([[0], [4], [10]])
    packed = pack(model)
    assert not linears(packed)
    assert type(packed.head) is PackedLinear
    with torch.inference_mode():
        for options in ({}, {"real": real}, {"last": True}):
            torch.testing.assert_close(
                packed(tokens, **options),
                model(tokens, **options),
                atol=2e-5,
                rtol=2e-5,
            )
        cache, ours = model.new_cache(3, 20), packed.new_cache(3, 20)
        for start, end in ((0, 6), (6, 7), (7, 11)):
            chunk = tokens[:, start:end]
            torch.testing.assert_close(
                packed(chunk, cache=ours),
                model(chunk, cache=cache),
                atol=2e-5,
                rtol=2e-5,
            )


def test_packed_writes_the_same_text(model):
    assert complete(pack(model), PROMPTS, 12) == complete(model, PROMPTS, 12)


@pytest.mark.parametrize("int8", [False, True])
def test_the_original_stays_as_it_is(model, int8):
    before = {k: v.clone() for k, v in model.state_dict().items()}
    n_linears = len(linears(model.train()))
    packed = pack(model, int8=int8)
    assert model.training and not packed.training
    assert all(m.training for m in model.modules())
    assert len(linears(model)) == n_linears
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_packed_matrices_are_their_own(model):
    tokens = draw_tokens(2, 7)
    packed = pack(model)
    with torch.inference_mode():
        before = packed(tokens)
        for linear in linears(model):
            linear.weight.zero_()
        assert torch.equal(packed(tokens), before)


@torch.no_grad()
def test_8_bits_are_what_they_say():
    torch.manual_seed(0)
    linear = nn.Linear(64, 89)
    x = torch.randn(7, 64) * torch.logspace(-3, 3, 7)[:, None]
    x[3] = 0
    w_scale = linear.weight.abs().amax(1, keepdim=True) / 127
    x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-30) / 63
    whole = (x / x_scale).round().double()
    expected = whole @ (linear.weight / w_scale).round().double().T
    expected = (expected * x_scale * w_scale.T + linear.bias).float()
    ours = Int8Linear(linear.weight, linear.bias)
    torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(ours(x)[3], linear.bias)
    assert torch.equal(ours(x[2:3]), ours(x)[2:3])  # alone as in a batch
    assert ours(x.view(7, 1, 64)).shape == (7, 1, 89)
    bare = Int8Linear(linear.weight, None)
    torch.testing.assert_close(bare(x) + linear.bias, ours(x))


@torch.no_grad()
def test_the_largest_products_do_not_overflow():
    """Where two products are added in 16 bits, 8 bits each are too many."""
    ours = Int8Linear(torch.ones(3, 256), None)
    torch.testing.assert_close(
        ours(torch.ones(2, 256)), torch.full((2, 3), 256.0)
    )


def test_8_bits_lose_little(model):
    tokens = draw_tokens(4, 20)
    with torch.inference_mode():
        exact, rounded = model(tokens), pack(model, int8=True)(tokens)
    error = (exact - rounded).std() / exact.std()
    assert 1e-4 < error < 0.06
    assert not torch.equal(exact, rounded)


def test_errors_say_what_was_expected(model, monkeypatch):
    with pytest.raises(ValueError, match=r"expected a model there; got one o"):
        pack(GPT(GPTConfig(**SIZES)).to("meta"))
    for dtype, int8 in [
        (torch.float64, False),
        (torch.bfloat16, True),
        (torch.half, False),
    ]:
        with pytest.raises(ValueError, match=rf"expected .* got {dtype}"):
            pack(model.to(dtype), int8=int8)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="without oneDNN; expected"):
        pack(model.float())


def test_a_single_layer_can_be_laid_out_anew():
    layer = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    new = replace_linear(layer, PackedLinear)
    assert [type(m) for m in new] == [PackedLinear, nn.ReLU, PackedLinear]
    assert type(layer[0]) is nn.Linear
    assert new[1] is not layer[1]
    with torch.inference_mode():
        x = torch.randn(4, 3)
        torch.testing.assert_close(new(x), layer(x))


def test_what_is_done_to_the_copy_leaves_the_original_alone(model):
    packed = pack(model)
    embedding = model.token_embedding.weight
    assert packed.token_embedding.weight.data_ptr() == embedding.data_ptr()
    calls = []
    packed.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    packed.requires_grad_(False)
    packed.double()
    model(draw_tokens(1, 3))
    assert not calls
    assert all(p.requires_grad for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_a_packed_model_is_not_packed_again(model, first, second):
    with pytest.raises(ValueError, match="expected the plain one; got a"):
        pack(pack(model, int8=first), int8=second)
