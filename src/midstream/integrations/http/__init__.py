"""The transport door: streams that reach the program through an HTTP client and no SDK of ours.

A program that sends a request to a model server over httpx, and reads the answer as server-sent events or as JSON
lines, is monitored here, from the bytes of the answer: LiteLLM's own providers, `huggingface_hub`, the SDKs of other
vendors, and hand-written code. `clients` has what others may use: which clients are monitored, and by which monitor.
`requests` decides from a request and its response whether this is an answer to follow. `observer` drives the stream's
session from the pieces of its body, which `events` splits and `reading` reads. `httpx_streams` stands between the
library's byte stream and its reader.
"""
