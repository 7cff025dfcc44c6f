"""Runs in a browser: what `patchgym runs serve` serves."""
