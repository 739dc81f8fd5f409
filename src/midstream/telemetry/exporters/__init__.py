"""Exporters for programs without OpenTelemetry of their own: OTLP, and a Prometheus endpoint.

`configuration` decides the destinations. `otlp` sends to a collector, `idle_push` whenever no stream is open.
`prometheus`
serves one page for all workers of a service: `process_tree` finds which processes belong together, `worker_files` is
where they share their metrics, and `aggregation` adds them up. `midstream.setup()` is the only user of this package.
"""
