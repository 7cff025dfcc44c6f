"""A set of images that belongs to one test, and is gone after it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_images() -> Iterator[str]:
    """The set's prefix, for `ImageStore`; at the end its images go, the topmost first."""
    name = f"patchgym-test-{secrets.token_hex(4)}"
    yield name
    label = f"label=patchgym.image.set={name}"
    form = "{{.Repository}}:{{.Tag}}"
    listing = ["docker", "images", "--filter", label, "--format", form]
    left = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    for kind in ("patchgym/snapshot:", "patchgym/supervised:", f"{name}/"):
        for tag in left:
            if tag.startswith(kind):
                subprocess.run(["docker", "rmi", tag], check=True, capture_output=True)
