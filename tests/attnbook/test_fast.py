"""Packed models: the plain model's numbers, with torch's kernels or not."""

import pytest
import torch
from torch import nn

from attnbook.fast import EightBitLinear, PackedLinear, pack, replace_linear
from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.quantised import by_scale

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


@pytest.fixture(params=["kernels", "no oneDNN", "no kernels"])
def kernels(request, monkeypatch):
    """Torch's private kernels, there or hidden."""
    if request.param == "no oneDNN":
        monkeypatch.setattr(
            torch.backends.mkldnn, "is_available", lambda: False
        )
    if request.param == "no kernels":
        monkeypatch.setattr(torch.ops, "mkldnn", object())
    return request.param


def draw_tokens(*shape):
    return torch.randint(37, shape, generator=torch.Generator().manual_seed(1))


def linears(module):
    return [m for m in module.modules() if type(m) is nn.Linear]


def test_packed_gives_the_plain_numbers(model, kernels):
    tokens = draw_tokens(3, 11)
    real = torch.arange(11) >= torch.tensor([[0], [4], [10]])
    packed = pack(model)
    assert not linears(packed)
    assert not packed.head.weight.requires_grad
    assert not any(p.requires_grad for p in packed.parameters())
    assert packed.head.weight.is_mkldnn == (kernels == "kernels")
    close = {"atol": 2e-5, "rtol": 2e-5}
    with torch.inference_mode():
        for options in ({}, {"real": real}, {"last": True}):
            found = packed(tokens, **options)
            expected = model(tokens, **options)
            torch.testing.assert_close(found, expected, **close)
        cache, ours = model.new_cache(3, 20), packed.new_cache(3, 20)
        for chunk in tokens.split([6, 1, 4], 1):
            found = packed(chunk, cache=ours)
            expected = model(chunk, cache=cache)
            torch.testing.assert_close(found, expected, **close)
    assert complete(packed, PROMPTS, 12) == complete(model, PROMPTS, 12)


def test_the_original_stays_as_it_is(model, kernels):
    before = {k: v.clone() for k, v in model.state_dict().items()}
    n_linears = len(linears(model.train()))
    packed = pack(model)
    embedding = model.token_embedding.weight
    assert packed.token_embedding.weight.data_ptr() == embedding.data_ptr()
    calls = []
    packed.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    packed.requires_grad_(False)
    packed.double()
    model(draw_tokens(1, 3))
    assert not calls and not packed.training
    assert all(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert len(linears(model)) == n_linears
    after = model.state_dict()
    for name, tensor in before.items():
        assert after[name].dtype == torch.float32
        assert torch.equal(after[name], tensor)


def test_packed_matrices_are_their_own(model, kernels):
    tokens = draw_tokens(2, 7)
    packed = pack(model)
    with torch.inference_mode():
        before = packed(tokens)
        for linear in linears(model):
            linear.weight.zero_()
        assert torch.equal(packed(tokens), before)


@pytest.mark.parametrize(
    "change, got",
    [
        (lambda model: model.to("meta"), "meta"),
        (lambda model: model.double(), "float64"),
        (pack, "packed already"),
    ],
)
def test_what_cannot_be_packed_is_refused(change, got):
    model = change(GPT(GPTConfig(**SIZES)))
    with pytest.raises(ValueError, match=got):
        pack(model)


def test_layers_of_any_module_can_be_laid_out_anew():
    layer = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    new = replace_linear(layer, PackedLinear)
    x = torch.randn(4, 3)
    assert [type(m) for m in new] == [PackedLinear, nn.ReLU, PackedLinear]
    assert type(layer[0]) is nn.Linear
    with torch.inference_mode():
        torch.testing.assert_close(new(x), layer(x))
        single = replace_linear(layer[0], PackedLinear)
        torch.testing.assert_close(single(x), layer[0](x))


def rounded_linear(weight, bias):
    """An ordinary layer whose matrix was rounded to 8 bits a row."""
    layer = nn.Linear(*weight.T.shape, bias=bias is not None)
    layer.weight = nn.Parameter(by_scale(weight, 8).values(), False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, False)
    return layer


@pytest.mark.parametrize("width", [64, 24, 50])
@torch.no_grad()
def test_8_bits_give_what_the_rounded_matrix_gives(width):
    """One token, by torch's kernel, and several."""
    torch.manual_seed(3)
    old = nn.Linear(width, 37)
    new = EightBitLinear(old.weight, old.bias)
    expected = rounded_linear(old.weight, old.bias)
    for shape in ((1, 1), (2, 1), (1, 17), (3, 30)):
        x = torch.randn(*shape, width)
        found = new(x)
        assert found.shape == (*shape, 37)
        torch.testing.assert_close(found, expected(x), atol=1e-5, rtol=1e-5)
        assert not torch.allclose(found, old(x), atol=1e-5)
    bare = EightBitLinear(old.weight, None)(x)
    torch.testing.assert_close(bare + old.bias, found)
    assert new.codes.dtype == torch.int8


def test_a_model_in_8_bits_writes_what_the_rounded_one_writes(model):
    eight = pack(model, EightBitLinear)
    rounded = pack(model, rounded_linear)
    assert not linears(eight)
    assert complete(eight, PROMPTS, 12) == complete(rounded, PROMPTS, 12)
