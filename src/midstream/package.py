"""What OpenTelemetry's tools ask an instrumentation about itself."""

_instruments = ("openai >= 1.40, < 4",)
_supports_metrics = True
