"""What runs in the monitored process: one `Monitor` per call of `monitor()`, one `Tracker` per open stream.

`watcher` and `schedule` notice a freeze while it lasts, `hooks` run the user's callbacks, `scope` finds the monitor in
force, and `settings` come from keywords and environment variables. `generators` and `iterators` stand between a
library's iterator and the caller: they are the hot path.
"""
