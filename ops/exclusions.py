"""Operators of the Paddle 1.8.5 table that fluidtool does not run, each with its reason."""

from __future__ import annotations

EXCLUDED: dict[str, str] = {
    "run_program": "it runs a traced function inside dynamic-graph mode and is never part of a saved program",
    "pull_box_sparse": "it reads embeddings from BoxPS, a closed service of Baidu",
    "pull_sparse": "it reads embeddings from a pslib server, which is not public",
    "pull_sparse_v2": "it reads embeddings from a pslib server, which is not public",
    "push_box_sparse": "it sends gradients to BoxPS, a closed service of Baidu",
    "push_dense": "it sends gradients to a pslib server, which is not public",
    "push_sparse": "it sends gradients to a pslib server, which is not public",
    "push_sparse_v2": "it sends gradients to a pslib server, which is not public",
}
