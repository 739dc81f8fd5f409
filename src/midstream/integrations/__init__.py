"""How midstream gets into a program: what it attaches to, and how.

`attach` has the public functions `monitor()`, `instrument()`, `uninstrument()` and `streams()`, and `attach()`, which
chooses the way by the kind of object. `openai` follows the streams of the openai SDK's clients, `http` event streams
over any HTTP library, and `generic` any iterator, function or context manager. `patching` replaces methods of classes
and restores them. `tracing` reads the caller's trace context. Other packages use `attach` only.
"""
