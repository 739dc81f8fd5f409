"""Whose time a wait was: the server's or the caller's.

`rule` decides how much of a wait counts as the server's gap. It uses `event_loop_lag` (was the loop blocked),
`tcp_info` (when did the kernel receive data) and `wire_gap` (the gap on the wire). `shared_freezes` tells whether
other streams of the same server froze at the same time.
"""
