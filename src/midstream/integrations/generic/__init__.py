"""Streams of any origin: iterators, generators, functions and context managers.

`functions` has the decorator and the context managers, `streams` follows one iterator, async iterator or generator, and
`object_proxy` makes the proxies that callers get in place of their objects. Inside `integrations`,
`functions.decorate`, `functions.manage`, `streams.follow` and their predicates are for use by others.
"""
