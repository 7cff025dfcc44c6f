"""What linters newly find in a diff: `lint` runs them in a sandbox on both states of its files."""
