"""Input and output: what is read from a journal, a Prometheus-compatible API, or a server's own `/metrics`.

Everything that comes in is bounded in time and size, checked, and returned as values or as an error of one sentence.
Others may use `http` (one GET with a deadline), `address` (URLs as users write them), `connection_errors` (why a server
could not be reached), `prometheus_api` (the client of a Prometheus) and `prometheus` (a fleet's streams from it),
`scrape`, `server` and `page` (a server's metrics), `select` and `tail` (streams of a journal), `fleet` (the values).
"""
