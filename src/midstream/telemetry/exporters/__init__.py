"""Where metrics go: `configuration` decides it, `otlp` pushes to a collector, `prometheus` serves an endpoint."""
