"""BERT-base in JAX, with random weights, compiled by XLA: what is measured beside fluidtool where JAX is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Made = tuple[Callable[..., Any], tuple[Any, ...]]
WORDS, LENGTH, WIDTH, HEADS, DEPTH = 30522, 128, 768, 12, 12


def bert_base(jax: Any, batch: int) -> Made:
    """(the encoder with its pooled output, its parameters and ids) in float32 without TF32."""
    jnp, random = jax.numpy, np.random.RandomState(0)

    def weights(*shape: int) -> Any:
        return jnp.asarray(random.standard_normal(shape).astype(np.float32) * 0.03)

    def linear(inner: int, outer: int) -> dict[str, Any]:
        return {"w": weights(inner, outer), "b": jnp.zeros(outer)}

    def layer() -> dict[str, Any]:
        square = {name: linear(WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
        return {**square, "wide": linear(WIDTH, 4 * WIDTH), "narrow": linear(4 * WIDTH, WIDTH)}

    def applied(by: Mapping[str, Any], data: Any) -> Any:
        return data @ by["w"] + by["b"]

    def normalized(data: Any) -> Any:
        mean = data.mean(-1, keepdims=True)
        return (data - mean) * jax.lax.rsqrt(((data - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    def heads(data: Any) -> Any:
        return data.reshape(batch, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    def run(parameters: Any, ids: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            data = normalized(parameters["words"][ids] + parameters["positions"])
            for of in parameters["layers"]:
                q, k, v = (heads(applied(of[name], data)) for name in ("q", "k", "v"))
                scores = jax.nn.softmax(q @ k.swapaxes(2, 3) / (WIDTH // HEADS) ** 0.5)
                seen = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, LENGTH, WIDTH)
                data = normalized(data + applied(of["out"], seen))
                inner = jax.nn.gelu(applied(of["wide"], data), approximate=False)
                data = normalized(data + applied(of["narrow"], inner))
            return data, jnp.tanh(applied(parameters["pool"], data[:, 0]))

    parameters = {
        "words": weights(WORDS, WIDTH),
        "positions": weights(LENGTH, WIDTH),
        "layers": [layer() for _ in range(DEPTH)],
        "pool": linear(WIDTH, WIDTH),
    }
    return jax.jit(run), (parameters, jnp.asarray(random.randint(0, WORDS, (batch, LENGTH))))


NETWORKS: Mapping[str, Callable[[Any, int], Made]] = {"bert_base": bert_base}
