"""Settings of both sides that are worth comparing."""

from __future__ import annotations

from typing import Any

from .sides import Side


def sweep_of(model: str) -> list[Side]:
    """Our defaults first; micro batches must divide the number of sequences."""
    return [
        _ours("trees", {}),
        *(_ours(f"block {size}", {"block": size}) for size in (64, 256)),
        *(_ours(f"head chunk {size}", {"head_chunk": size}) for size in (64, 256)),
        *(_ours(f"keep {what}", {"keep": what}) for what in ("attention", "inputs")),
        *(_ours(f"rows of {n}", {"row_tokens": [n]}) for n in (768, 1024, 1536, 2048)),
        *(_tunix(size, "NONE") for size in (1, 2, 4, 8)),
        *(_tunix(size, "DECODER") for size in (1, 4)),
        _tunix(4, "BLOCK"),
        *(_packed(budget) for budget in (1024, 2048)),
    ]


def _ours(name: str, settings: dict[str, Any]) -> Side:
    return Side(name=name, note="ours", settings=settings)


def _tunix(micro: int, remat: str) -> Side:
    settings = {"micro": micro, "remat": remat}
    return Side(name=f"Tunix {micro} {remat}", note="padded", settings=settings, peer=True)


def _packed(budget: int) -> Side:
    settings = {"budget": budget}
    return Side(name=f"Tunix packed {budget}", note="mended", settings=settings, peer=True)
