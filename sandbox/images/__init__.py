"""Images for sandboxes: Debian bases, and one image a repository, commit and environment."""
