"""The kernel in Triton, where there is Triton: on a card, or interpreted."""

import os
import subprocess
import sys

import pytest
import torch

from attnbook import kernel
from attnbook.merging import tiled_attention
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [(33, 57, 4, 3), (5, 40, 16, 16), (40, 5, 2, 20), (1, 1, 1, 1)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T, S, d_k, d_v", SIZES)
def test_the_kernel_is_the_loop(T, S, d_k, d_v, causal):
    if kernel.MISSING:
        pytest.skip(kernel.MISSING)
    q, k, v = (
        randn(2, *size, seed=n, dtype=torch.float32).to(DEVICE)
        for n, size in enumerate([(T, d_k), (S, d_k), (S, d_v)])
    )
    ours = kernel.kernel_attention(q, k, v, causal=causal)
    exact = (x.double() for x in (q, k, v))
    agrees(ours, tiled_attention(*exact, causal=causal), within=2e-6)


def test_of_a_triton_without_its_interpreter_it_says_what_to_do():
    if kernel.MISSING or torch.cuda.is_available():
        pytest.skip(kernel.MISSING or "there is a card")
    code = "import triton; from attnbook import kernel; print(kernel.MISSING)"
    free = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    free["PYTHONPATH"] = os.pathsep.join(sys.path)
    told = subprocess.check_output([sys.executable, "-c", code], env=free)
    assert b"set TRITON_INTERPRET=1 first" in told


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(kernel, "MISSING", "no Triton here")
    with pytest.raises(RuntimeError, match="no Triton here"):
        kernel.kernel_attention(*[torch.ones(1, 1)] * 3)


def test_inputs_may_lie_in_memory_in_any_order():
    """Transposed, or one row of keys that all heads share."""
    if kernel.MISSING:
        pytest.skip(kernel.MISSING)
    q, k, v = (
        randn(n, 2, 4, seed=n, dtype=torch.float32).transpose(0, 1).to(DEVICE)
        for n in (5, 9, 9)
    )
    for keys in (k, k[:1].expand(2, 9, 4)):
        ours = kernel.kernel_attention(q, keys, v)
        exact = (x.double() for x in (q, keys, v))
        agrees(ours, tiled_attention(*exact), within=2e-6)
