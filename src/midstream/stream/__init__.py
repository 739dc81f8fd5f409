"""The life of one stream, without I/O, threads or clocks of its own.

`model` has the values that are passed around (records, calls, freezes, outcomes). `session` is the bookkeeping of one
open stream: waits, holds, gaps, freezes and its end. `chunks` and `generic_chunks` classify what an iterator yields,
`answer` collects what the chunks amount to, `finish_reasons` and `errors` map servers' and libraries' words to closed
sets, and `snapshots` makes records and views from a session.
"""
