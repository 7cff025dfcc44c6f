"""The repair tasks that come with patchgym, and the code that makes them."""
