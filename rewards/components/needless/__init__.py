"""What a change did not need, kind by kind; the component is in `needless_changes`."""
