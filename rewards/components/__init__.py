"""The components that come with patchgym; `registry.BUILT_IN` names them."""
