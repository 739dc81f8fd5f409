"""The ways into a program: `openai` for the SDK's clients, `generic` for any iterator, function or context manager.

`attach` has `monitor()`, `instrument()` and `streams()`, and chooses the way by what it is given. `patching` puts our
functions in place of a class's own, and takes them out again.
"""
