"""Which images are ours, what each takes, and which should go first. Decisions only, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.sandbox.launch import SNAPSHOTS
from patchgym.sandbox.supervised import LABEL as SUPERVISED_LABEL
from patchgym.sandbox.supervised import REPOSITORY as SUPERVISED

from .daemon import LocalImage

KIND_LABEL = "patchgym.image.kind"
SET_LABEL = "patchgym.image.set"
"""The prefix of the store that made an image; images that are committed on it inherit it."""
COMMIT_LABEL = "patchgym.image.commit"
DEFAULT_SET = "patchgym"

Kind = Literal["recipe", "repository", "supervised", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """One of our images."""

    tag: str
    """Its name."""
    id: str
    """Its content id."""
    kind: Kind
    """recipe: an environment; repository: with a commit's files on top; supervised: any image with
    our supervisor in it; snapshot: what `Sandbox.snapshot()` made."""
    parent: str
    """Id of the image below."""
    size: int
    """Bytes of its own layer: what its removal frees."""
    last_used: float
    """Unix time, seconds."""
    in_use: bool
    """A container stands on it, so it is never evicted."""
    commit: str = ""
    """The commit in a repository image."""


def survey(
    listing: Sequence[LocalImage],
    used: Mapping[str, float],
    standing: Collection[str],
    *,
    prefix: str,
) -> tuple[StoredImage, ...]:
    """The images of one store, the most recently used first.

    `used` has times of last use by tag; containers were made from the ids in `standing`.
    """
    by_id = {image.id: image for image in listing}
    below_containers = {
        image.id for each in standing if each in by_id for image in _down(by_id[each], by_id)
    }
    found: list[StoredImage] = []
    for image in listing:
        kind = _kind(image, prefix)
        if kind is None:
            continue
        parent = by_id.get(_parent(image))
        found.append(
            StoredImage(
                tag=image.tag,
                id=image.id,
                kind=kind,
                parent=_parent(image),
                size=max(image.size - (parent.size if parent else 0), 0),
                last_used=_last_used(image, kind, by_id, used),
                in_use=image.id in below_containers,
                commit=image.labels.get(COMMIT_LABEL, "") if kind == "repository" else "",
            )
        )
    return tuple(sorted(found, key=lambda image: (-image.last_used, image.tag)))


def rebuilt_on_demand(images: Sequence[StoredImage]) -> tuple[StoredImage, ...]:
    """Those that a store builds again when asked, and what was made to start them.

    Not snapshots, which can't be had back, nor what pools made to start other images.
    """
    own = {image.id for image in images if image.kind in ("recipe", "repository")}
    return tuple(
        image
        for image in images
        if image.id in own or (image.kind == "supervised" and image.parent in own)
    )


def to_evict(images: Sequence[StoredImage], keep: int, recent: float) -> tuple[StoredImage, ...]:
    """What to remove, in this order, until at most `keep` bytes remain or nothing more may go.

    The least recently used first, and an image after all that stand on it. Those in use, or last
    used after `recent`, stay, and so does what they stand on.
    """
    left = {image.tag: image for image in images}
    total = sum(image.size for image in images)
    chosen: list[StoredImage] = []
    while total > keep or (keep == 0 and left):
        below = {image.parent for image in left.values()}
        free = [
            image
            for image in left.values()
            if not image.in_use and image.last_used <= recent and image.id not in below
        ]
        if not free:
            break
        oldest = min(free, key=lambda image: (image.last_used, image.tag))
        del left[oldest.tag]
        total -= oldest.size
        chosen.append(oldest)
    return tuple(chosen)


def _kind(image: LocalImage, prefix: str) -> Kind | None:
    kinds: dict[str, Kind] = {
        f"{prefix}/recipe": "recipe",
        f"{prefix}/repository": "repository",
        SUPERVISED: "supervised",
        SNAPSHOTS: "snapshot",
    }
    same_set = image.labels.get(SET_LABEL, DEFAULT_SET) == prefix
    return kinds.get(image.tag.rpartition(":")[0]) if same_set else None


def _parent(image: LocalImage) -> str:
    return image.parent or image.labels.get(SUPERVISED_LABEL, "")


def _down(image: LocalImage, by_id: Mapping[str, LocalImage]) -> Iterator[LocalImage]:
    """An image and all that it stands on."""
    below: LocalImage | None = image
    while below is not None:
        yield below
        below = by_id.get(_parent(below))


def _last_used(
    image: LocalImage, kind: Kind, by_id: Mapping[str, LocalImage], used: Mapping[str, float]
) -> float:
    if kind == "supervised" and (parent := by_id.get(_parent(image))):
        image = parent  # it stays and goes with what it was made for
    return used.get(image.tag, image.created)
