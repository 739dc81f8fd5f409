"""OpenTelemetry metrics: every instrument once, the labels, the gauges, and the recorder that fills them.

Alerts, dashboards, sources and docs name metrics by the objects in `instruments`. `exporters` sends metrics out for
applications that have no OpenTelemetry set-up of their own.
"""
