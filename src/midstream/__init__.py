"""Tells when an LLM answer freezes in mid-stream, for how long, whose fault it was, and which limit to set."""
