"""An image with all the linters and formatters, at versions that we tried."""

from __future__ import annotations

from patchgym.sandbox.images.recipe import ImageRecipe
from patchgym.sandbox.images.store import ImageStore
from patchgym.sandbox.spec import SandboxSpec

PACKAGES = (
    "ruff==0.17.6", "bandit==1.9.4", "semgrep==1.185.0", "detect-secrets==1.5.0",
    "black==26.10.1", "yapf==0.43.0", "autopep8==2.3.2",
)  # fmt: skip
PROGRAMS = (
    "ruff", "bandit", "semgrep", "pysemgrep", "detect-secrets", "black", "yapf", "autopep8",
)  # fmt: skip
PLACE = "/opt/patchgym-lint"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MEMORY_MIB = 1024


def lint_recipe() -> ImageRecipe:
    """The environment: on Debian 12, the linters in a virtual environment of their own."""
    python = f"{PLACE}/bin/python"
    return ImageRecipe(
        commands=(
            f"python3 -m venv --without-pip {PLACE}",
            f"pip --python {python} install {' '.join(PACKAGES)}",
            # semgrep does not start without some CA bundle: certifi's, which it brings along
            f"mkdir -p /etc/ssl/certs && ln -s $({python} -m certifi) {CERTIFICATES}",
            f"cd {PLACE}/bin && for name in {' '.join(PROGRAMS)}; "
            "do ln -s $PWD/$name /usr/local/bin/$name; done",
        )
    )


async def ensure_lint_image(store: ImageStore) -> str:
    """Tag of the image, built when missing: pip must reach an index, see `BuildAccess`.

    Raises ImageError, EngineUnavailable.
    """
    return await store.environment(lint_recipe())


def lint_spec(image: str) -> SandboxSpec:
    """A sandbox with room for all built-in linters side by side."""
    return SandboxSpec(image=image, memory_mib=MEMORY_MIB, cpus=2.0, pids=256)
