"""Keeps compiled programs between processes, so that a second start does not compile again."""

from __future__ import annotations

import os

import jax
from jax.experimental.compilation_cache import compilation_cache

from patchgym.datasets.cache import cache_dir


def keep_compiled_programs(folder: str = "auto") -> None:
    """Keep them in `folder`; `auto` is the user's cache, empty keeps none.

    `JAX_COMPILATION_CACHE_DIR`, where set, takes precedence over `auto`. Programs compiled before
    the call are not kept, so call it early.
    """
    if not folder or (folder == "auto" and os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        return
    wanted = str(cache_dir() / "compiled") if folder == "auto" else folder
    if getattr(jax.config, "jax_compilation_cache_dir", None) == wanted:
        return
    settings = {
        "jax_compilation_cache_dir": wanted,
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
    # JAX decides once per process whether it has a cache; have it look again.
    compilation_cache.reset_cache()
