"""Reads the few gauges that admission needs out of a Prometheus text page."""

from __future__ import annotations

from patchgym.agent.policy import PolicyLoad

_NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "cache",
    "vllm:num_preemptions_total": "preemptions",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "cache",
    "sglang:num_retracted_reqs": "preemptions",
}


def load_of(page: str) -> PolicyLoad:
    """How busy the server is that wrote `page`; zero for what it doesn't say. Engines add up."""
    sums = {"running": 0.0, "waiting": 0.0, "preemptions": 0.0}
    cache = 0.0
    for line in page.splitlines():
        name, _, rest = line.partition("{")
        labelled = bool(rest)
        if not labelled:
            name, _, rest = line.partition(" ")
        kind = _NAMES.get(name)
        if kind is None:
            continue
        try:
            value = float(rest.rpartition("}")[2].split()[0] if labelled else rest.split()[0])
        except (ValueError, IndexError):
            continue
        if kind == "cache":
            cache = max(cache, value)
        else:
            sums[kind] += value
    return PolicyLoad(
        running=int(sums["running"]),
        waiting=int(sums["waiting"]),
        cache_use=min(1.0, max(0.0, cache)),
        preemptions=int(sums["preemptions"]),
    )
