"""LoRA: a new adapter changes nothing, a merged one computes the same, and the
change has the rank that was asked for."""

import pytest
import torch
from models import random_model, random_tokens
from torch import nn

from attnbook.gpt import GPTConfig
from attnbook.lora import LoRALinear, add_lora, merge_lora, without_lora
from attnbook.teach.check.seeded import randn
from attnbook.training import Recipe, make_optimizer, update

CONFIG = GPTConfig(
    vocab_size=11, context=8, d_model=8, n_heads=2, n_layers=2, dropout=0.0
)


def layer(d_in=7, d_out=5, *, bias=True, seed=1, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Linear(d_in, d_out, bias=bias).to(dtype)


def trained(plain, rank, alpha, seed=2):
    """An adapter whose `up` is no longer zero."""
    adapter = LoRALinear(plain, rank, alpha)
    with torch.no_grad():
        adapter.down.copy_(randn(*adapter.down.shape, seed=seed))
        adapter.up.copy_(randn(*adapter.up.shape, seed=seed + 1))
    return adapter


def model():
    return random_model(CONFIG)


def scramble(adapters):
    for n, adapter in enumerate(adapters):
        with torch.no_grad():
            adapter.up.copy_(randn(*adapter.up.shape, seed=n) / 10)


@pytest.mark.parametrize("bias", [True, False])
def test_a_new_adapter_changes_no_bit(bias):
    plain = layer(bias=bias)
    x = randn(3, 2, 7, seed=3)
    wanted = plain(x)
    adapter = LoRALinear(plain, 2, 6)
    assert torch.equal(adapter(x), wanted)
    assert adapter.down.any() and not adapter.up.any()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rank", "alpha"), [(1, 16), (2, 6), (5, 2), (3, 3)])
def test_merged_is_unmerged_also_where_alpha_is_not_the_rank(
    rank, alpha, bias
):
    adapter = trained(layer(bias=bias), rank, alpha)
    before = adapter.weight.clone()
    x = randn(3, 2, 7, seed=3)
    merged = adapter.merged()
    assert type(merged) is nn.Linear
    assert (merged.bias is None) is not bias
    torch.testing.assert_close(merged(x), adapter(x), rtol=0, atol=1e-12)
    # W + α/r · up · down, written out.
    by_hand = before + alpha / rank * adapter.up @ adapter.down
    torch.testing.assert_close(merged.weight, by_hand, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        adapter.change(), by_hand - before, rtol=0, atol=1e-12
    )
    assert torch.equal(adapter.weight, before)


def test_a_merged_layer_shares_nothing_with_the_adapter():
    adapter = trained(layer(), 2, 6)
    merged = adapter.merged()
    with torch.no_grad():
        merged.bias.zero_()
        merged.weight.zero_()
    assert adapter.bias.all() and adapter.weight.all()
    assert merged.weight.requires_grad and merged.bias.requires_grad


def test_a_weight_of_few_bits_is_rounded_once():
    adapter = trained(layer(dtype=torch.bfloat16), 2, 6)
    exact = adapter.weight.double() + 3 * (
        adapter.up.double() @ adapter.down.double()
    )
    assert torch.equal(adapter.merged().weight, exact.bfloat16())


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_the_change_has_the_rank_that_was_asked_for(rank):
    adapter = trained(layer(), rank, 4)
    assert torch.linalg.matrix_rank(adapter.change()) == rank
    assert adapter.down.shape == (rank, 7) and adapter.up.shape == (5, rank)


def test_the_first_numbers_are_within_their_bounds_and_of_the_seed():
    wide = layer(10_000, 3)
    drawn = [
        LoRALinear(wide, 2, 2, torch.Generator().manual_seed(seed)).down
        for seed in (0, 0, 1)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    largest = drawn[0].abs().max()
    assert 0.0099 < largest <= 0.01  # 1/√10,000
    assert drawn[0].min() < -0.0099
    assert abs(drawn[0].mean()) < 0.0002


def test_only_the_adapters_get_gradients():
    found = model()
    adapters = add_lora(found, 2, 4)
    names = {n for n, p in found.named_parameters() if p.requires_grad}
    assert len(adapters) == 2 * 3
    assert len(names) == 2 * len(adapters)
    assert {n.rpartition(".")[2] for n in names} == {"down", "up"}
    found(random_tokens(11, 2, 5)).sum().backward()
    for name, parameter in found.named_parameters():
        assert (parameter.grad is not None) == (name in names)


def test_the_names_say_which_layers():
    found = model()
    add_lora(found, 1, 1, layers=["query"])
    for block in found.blocks:
        assert isinstance(block.attention.query, LoRALinear)
        assert not isinstance(block.attention.key_value, LoRALinear)
        assert not isinstance(block.attention.out, LoRALinear)
    new = model()
    add_lora(new, 1, 1)
    for block in new.blocks:
        for name in ("query", "key_value", "out"):
            assert isinstance(getattr(block.attention, name), LoRALinear)
        assert not any(
            isinstance(part, LoRALinear)
            for part in block.feed_forward.modules()
        )


def test_adapters_of_one_model_differ_and_follow_the_seed():
    first = add_lora(model(), 2, 4)
    again = add_lora(model(), 2, 4)
    other = add_lora(model(), 2, 4, seed=1)
    assert all(torch.equal(a.down, b.down) for a, b in zip(first, again))
    assert not torch.equal(first[0].down, other[0].down)
    assert not torch.equal(first[0].down, first[3].down)


def test_a_whole_model_merged_is_the_model_with_adapters():
    found = model()
    tokens = random_tokens(11, 2, 6)
    before = found(tokens)
    names = {name for name, _ in found.named_modules()}
    adapters = add_lora(found, 2, 6)
    assert torch.equal(found(tokens), before)
    scramble(adapters)
    wanted = found(tokens)
    assert (wanted - before).abs().max() > 0.1
    assert merge_lora(found) == len(adapters)
    torch.testing.assert_close(found(tokens), wanted, rtol=0, atol=1e-11)
    assert not any(isinstance(m, LoRALinear) for m in found.modules())
    assert {name for name, _ in found.named_modules()} == names
    assert merge_lora(found) == 0


def test_without_its_adapters_the_model_is_what_it_was():
    found = model()
    tokens = random_tokens(11, 2, 6)
    before = found(tokens)
    adapters = add_lora(found, 2, 6)
    scramble(adapters)
    with_them = found(tokens)
    with without_lora(found) as same:
        assert same is found
        assert torch.equal(found(tokens), before)
        with without_lora(found):
            pass
        assert torch.equal(found(tokens), before)  # still off
    assert torch.equal(found(tokens), with_them)
    with pytest.raises(KeyError), without_lora(found):
        raise KeyError
    assert torch.equal(found(tokens), with_them)


def test_training_leaves_the_model_under_the_adapters_as_it_was():
    found = model().float()
    kept = {name: p.clone() for name, p in found.named_parameters()}
    add_lora(found, 2, 4)
    recipe = Recipe(steps=3, warmup=0, batch_size=2, weight_decay=0.5)
    optimizer = make_optimizer(found, recipe)
    tokens = random_tokens(11, 2, 6)
    losses = [
        update(found, optimizer, (tokens[:, :-1], tokens[:, 1:]), n, recipe)
        for n in range(3)
    ]
    assert losses[-1] < losses[0]
    now = dict(found.named_parameters())
    for name, parameter in kept.items():
        assert torch.equal(now[name], parameter)


def test_a_refusal_leaves_the_model_as_it_was():
    found = model()
    with pytest.raises(ValueError, match="nothing would be trained"):
        add_lora(found, 2, 4, layers=["q_proj"])
    assert all(p.requires_grad for p in found.parameters())
    add_lora(found, 2, 4, layers=["query"])
    flags = [p.requires_grad for p in found.parameters()]
    with pytest.raises(ValueError, match="adapter already"):
        add_lora(found, 2, 4, layers=["out", "query"])
    assert [p.requires_grad for p in found.parameters()] == flags
    new = model()
    with pytest.raises(ValueError, match="rank"):
        add_lora(new, 9, 4)
    # A matrix of 16 × 8 has no more than 8 ranks.
    with pytest.raises(ValueError, match="rank is not allowed.*got 9"):
        add_lora(new, 9, 4, layers=["key_value"])
    with pytest.raises(ValueError, match="rank is not allowed.*got 0"):
        add_lora(new, 0, 4)
    with pytest.raises(ValueError, match="alpha"):
        add_lora(new, 2, 0)
    assert all(p.requires_grad for p in new.parameters())


def test_an_adapter_by_itself_is_checked_too():
    plain = layer()
    for rank in (0, 6):  # at most the smaller width, which is 5
        said = f"rank is not .*, at least 1, at most 5; got {rank}"
        with pytest.raises(ValueError, match=said):
            LoRALinear(plain, rank, 4)
    with pytest.raises(ValueError, match="alpha is not allowed.*got 0"):
        LoRALinear(plain, 2, 0)
    assert plain.weight.requires_grad and plain.bias.requires_grad
    assert LoRALinear(plain, 5, 0.5).scale == 0.1


def test_the_layers_numbers_are_taken_over_not_copied():
    plain = layer()
    adapter = LoRALinear(plain, 2, 6)
    assert adapter.weight is plain.weight and adapter.bias is plain.bias
    assert not plain.weight.requires_grad and not plain.bias.requires_grad
    assert (adapter.in_features, adapter.out_features) == (7, 5)
    assert adapter.down.dtype == adapter.up.dtype == torch.float64
    assert LoRALinear(layer(bias=False), 2, 6).bias is None
    assert adapter.scale == 3 and adapter.active


def test_what_a_change_and_a_merged_layer_are_records_no_gradients():
    adapter = trained(layer(), 2, 6)
    assert not adapter.change().requires_grad
    merged = adapter.merged()
    assert merged.weight.is_leaf and merged.bias.is_leaf
    assert (merged.in_features, merged.out_features) == (7, 5)


def test_one_adapter_that_was_off_before_stays_off():
    found = model()
    first, *others = add_lora(found, 2, 6)
    first.active = False
    with without_lora(found):
        assert not any(a.active for a in (first, *others))
    assert not first.active and all(a.active for a in others)


def test_the_names_that_there_are_are_told():
    said = (
        "no linear layer of the model has one of the names in `layers`, so "
        r"nothing would be trained; expected some of \["
    )
    with pytest.raises(ValueError, match=said) as told:
        add_lora(model(), 2, 4, layers=["q_proj"])
    assert "'key_value'" in str(told.value) and "q_proj" in str(told.value)


def test_adapters_come_in_the_order_of_the_model():
    found = model()
    adapters = add_lora(found, 2, 4, layers=("out", "query"))
    assert adapters == [
        layer
        for block in found.blocks
        for layer in (block.attention.query, block.attention.out)
    ]


def test_a_model_that_is_one_layer_in_a_list_is_met_too():
    found = torch.nn.Sequential(layer())
    (adapter,) = add_lora(found, 2, 4, layers=["0"])
    assert found[0] is adapter
    assert merge_lora(found) == 1 and type(found[0]) is nn.Linear
