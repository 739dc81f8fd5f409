"""A reverse proxy that monitors the streams that pass through it, for clients in any language.

`application` answers one request: it sends it to an `upstream`, and `relay` passes on what comes, piece by piece,
beside the observer of `integrations.http`. `headers` decides what is passed on, `faults` what a client reads when there
is nothing to pass on. `service` makes it of settings, `server` runs it. Needs the extra `proxy`.
"""
