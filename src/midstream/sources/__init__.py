"""Where numbers come from: a journal, any Prometheus-compatible API, a server's own `/metrics`."""
