"""The file that `patchgym images build` reads: a repository, commits, and a recipe."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from patchgym.sandbox import ImageRecipe
from patchgym.trainer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSection:
    """`[recipe]`: as `ImageRecipe`, but its files are named, and read from each commit."""

    base: str = "auto"
    """Tag of a local image; auto is patchgym's base image."""
    commands: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    network: Literal["bridge", "none"] = "bridge"
    timeout: float = 1800.0

    def with_files(self, contents: Mapping[str, bytes]) -> ImageRecipe:
        """The recipe with its files' contents."""
        recipe = ImageRecipe(
            commands=self.commands,
            install=self.install,
            environment=self.environment,
            files=contents,
            network=self.network,
            timeout=self.timeout,
            **({} if self.base == "auto" else {"base": self.base}),
        )
        return recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """The whole file."""

    repository: str
    """A folder, relative to the file's, or an address to mirror."""
    commits: tuple[str, ...]
    """Commit ids, or names that the repository knows."""
    workdir: str = "/workspace"
    """Where the repository is put."""
    recipe: RecipeSection = field(default_factory=RecipeSection)


def load_image_file(path: Path) -> ImageFile:
    """Read and check it; ConfigError names the key, and the nearest known one."""
    try:
        mapping = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; start from examples/images.toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    _check_keys(path, ImageFile, mapping, "")
    _check_keys(path, RecipeSection, mapping.get("recipe", {}), "recipe.")
    from pydantic import TypeAdapter, ValidationError

    try:
        read = TypeAdapter(ImageFile).validate_python(mapping)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = first["msg"]
        raise ConfigError(f"{path}: {key}: {reason[:1].lower()}{reason[1:]}") from None
    if not read.commits:
        raise ConfigError(f"{path}: commits: name at least one")
    return read


def _check_keys(path: Path, section: type, mapping: Any, where: str) -> None:
    known = [each.name for each in fields(section)]
    for key in mapping if isinstance(mapping, dict) else ():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {where}{near[0]}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown key {where}{key}; {hint}")
