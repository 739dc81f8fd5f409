"""What an operator loads into Prometheus and Grafana: `alerts` and `dashboards`."""
